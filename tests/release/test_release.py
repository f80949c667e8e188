"""Two builds of one state of the sources are equal, and hold what they state. What they hold runs: test_containers."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata

from release import source
from release.libraries import releases
from release.problem import ReleaseError
from release.python import licenses, metadata_text
from tests.release.conftest import MACHINE, TOP, URL, only, own
from tests.shared import END_S

pytestmark = pytest.mark.more
LOADERS = {"ld-linux-aarch64.so.1", "ld-linux-x86-64.so.2"}


def test_two_builds_are_equal(release, again):
    one, other = (
        {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(f.iterdir())} for f in (release, again)
    )

    assert one == other
    kinds = {"whl", "gz", "deb", "json", "lock", *(("rpm",) if shutil.which("rpmbuild") else ())}
    assert {name.rpartition(".")[2] for name in one if "." in name} == kinds


def test_the_checksums_are_those_of_every_file(release):
    lines = (release / "SHA256SUMS").read_text().splitlines()

    assert {line.split()[1] for line in lines} == {path.name for path in release.iterdir()} - {"SHA256SUMS"}
    for line in lines:
        digest, name = line.split()
        assert hashlib.sha256((release / name).read_bytes()).hexdigest() == digest


@pytest.fixture(scope="module")
def no_compiler(tmp_path_factory):
    """A PATH with what a shell script needs and nothing else."""
    folder = tmp_path_factory.mktemp("path")
    for name in ("sh", "ls", "sort", "readlink", "dirname", "uname"):
        (folder / name).symlink_to(shutil.which(name))
    return {"PATH": str(folder), "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}


@pytest.fixture(scope="module", params=["x86_64", "aarch64"])
def libraries(request, release, tmp_path_factory):
    """(machine, libraries of its wheel as files)."""
    folder = tmp_path_factory.mktemp(request.param)
    with zipfile.ZipFile(own(release, request.param)) as archive:
        found = [Path(archive.extract(name, folder)) for name in archive.namelist() if name.endswith(".so")]
    return request.param, found


def test_a_wheel_has_every_library_for_its_machine(libraries):
    machine, files = libraries
    kinds = {"x86_64": "Advanced Micro Devices X86-64", "aarch64": "AArch64"}

    assert sorted({file.name for file in files}) == ["libcuda.so", "libnvidia-ml.so"]
    assert len(files) == 1 + len(list(releases()))
    for file in files:
        header = subprocess.run(["readelf", "-h", file], capture_output=True, text=True, check=True).stdout
        assert re.search(rf"Machine: +{kinds[machine]}", header)


def test_the_libraries_run_with_the_c_library_that_the_tag_of_the_wheel_names(libraries):
    """manylinux_2_28: every symbol is one of glibc 2.28 or older, and no other library is needed."""
    for file in libraries[1]:
        words = ["readelf", "--wide", "--version-info", "--dynamic", file]
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        versions = {tuple(map(int, found.split("."))) for found in re.findall(r"\bGLIBC_([\d.]+)", told)}
        needed = set(re.findall(r"\(NEEDED\).*\[(.*?)\]", told))

        assert versions
        assert max(versions) <= (2, 28)
        assert needed <= {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", *LOADERS}
        assert str(TOP).encode() not in file.read_bytes()


def test_a_library_of_the_wheel_exports_what_the_compiled_one_does(release, tmp_path):
    """The key of the folder says that its library is of these sources; here it is also of this release of NVML."""
    from gpucheck.simulator.compiler import nvml_key
    from gpucheck.simulator.nvml.library import OWN, exports

    for branch in ("340", "450", "580"):
        name = f"gpucheck/simulator/libraries/{nvml_key(MACHINE, exports(branch))}/libnvidia-ml.so"
        with zipfile.ZipFile(own(release)) as archive:
            file = Path(archive.extract(name, tmp_path))
        listed = subprocess.run(["nm", "-D", "--defined-only", file], capture_output=True, text=True, check=True).stdout

        assert {line.split()[-1] for line in listed.splitlines()} == {OWN, *(one.name for one in exports(branch))}


def test_the_metadata_is_what_a_package_index_accepts(release):
    told = Metadata.from_email(metadata_text(own(release)))

    assert (told.name, str(told.version), told.license_expression) == ("gpucheck-cluster", "0.1.0", "Apache-2.0")
    assert {"Repository", "Issues", "Documentation", "Changelog"} == set(told.project_urls or {})
    assert told.keywords
    assert told.classifiers
    targets = re.findall(r"\]\(([^)]+)\)|src=\"([^\"]+)", told.description or "")
    assert len(targets) > 20
    assert all("".join(target).startswith(f"{URL}/") for target in targets)


def unpacked(deb: Path, folder: Path) -> Path:
    """The files of a .deb."""
    subprocess.run(["dpkg-deb", "--extract", deb, folder], check=True)
    return folder


@pytest.fixture(scope="module")
def installed(release, tmp_path_factory):
    return unpacked(only(release, "*.deb"), tmp_path_factory.mktemp("deb"))


def test_the_deb_says_what_is_missing_on_a_host_without_a_python(installed, tmp_path, no_compiler):
    shutil.copytree(installed / "usr/bin", tmp_path / "bin")
    (tmp_path / "lib/gpucheck-cluster/python3.11/bin").mkdir(parents=True)

    done = subprocess.run([tmp_path / "bin/gpucheck"], env=no_compiler, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (70, "")
    assert "Error: gpucheck needs /usr/bin/python3.10 or newer" in done.stderr


@pytest.mark.parametrize(
    ("stated", "expression"),
    [
        (("License-Expression: MIT", "License-Expression: 0BSD OR MIT"), "(0BSD OR MIT) AND MIT"),
        (("Classifier: License :: OSI Approved :: BSD License", "License-Expression: Zlib"), "BSD-3-Clause AND Zlib"),
        (("License: MIT",), None),
        (("Classifier: License :: Other/Proprietary License",), None),
    ],
)
def test_a_package_states_the_licenses_of_all_wheels(tmp_path, stated, expression):
    wheels = [tmp_path / f"{number}.whl" for number in range(len(stated))]
    for wheel, line in zip(wheels, stated, strict=True):
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("a.dist-info/METADATA", f"Name: a\n{line}\n\n")
    if expression:
        assert licenses(wheels) == expression
    else:
        with pytest.raises(ReleaseError, match=r"0\.whl: states no license"):
            licenses(wheels)


@pytest.mark.skipif(shutil.which("rpmbuild") is None, reason="rpmbuild is not installed")
def test_the_rpm_names_the_licenses_of_what_is_in_it(release):
    words = ["rpm", "--dbpath", "/nonexistent", "-qp", "--qf", "%{LICENSE}", only(release, "*.rpm")]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout

    assert {"Apache-2.0", "BSD-3-Clause", "MIT"} <= set(told.split(" AND "))


@pytest.mark.skipif(shutil.which("rpmbuild") is None, reason="rpmbuild is not installed")
def test_the_rpm_has_the_files_of_the_deb(release, installed):
    words = ["rpm", "--dbpath", "/nonexistent", "-qp", "--qf", "[%{FILEMODES:perms} %{FILEUSERNAME} %{FILENAMES}\n]"]
    rows = subprocess.run(
        [*words, only(release, "*.rpm")], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    files = {row.split()[2] for row in rows if not row.startswith("d")}

    assert files == {f"/{p.relative_to(installed)}" for p in installed.rglob("*") if p.is_symlink() or p.is_file()}
    assert {row.split()[1] for row in rows} == {"root"}


ELF_MACHINES = {"amd64": 62, "arm64": 183}  # e_machine of elf.h


def test_a_package_has_code_for_its_machine_only(release, tmp_path):
    """Of each machine that the release is for: GPUCHECK_RELEASE names one with packages for both."""
    for deb in release.glob("*.deb"):
        architecture = deb.stem.rsplit("_", 1)[1]
        files = [path for path in unpacked(deb, tmp_path / architecture).rglob("*") if path.is_file()]
        heads = {path: path.read_bytes()[:20] for path in files if not path.is_symlink()}
        machines = {path: head[18] for path, head in heads.items() if head[:4] == b"\x7fELF"}
        names = {path.name for path in machines}

        assert set(machines.values()) == {ELF_MACHINES[architecture]}, architecture
        assert {"libcuda.so", "libnvidia-ml.so"} <= names
        assert any(name.startswith("_core.") for name in names)  # msgspec: the dependencies are of this machine too


def test_the_bill_of_materials_lists_what_the_packages_hold(release, installed):
    bill = json.loads(only(release, "*.cdx.json").read_text())
    rows = {f"{row['name'].lower().replace('_', '-')}@{row['version']}": row for row in bill["components"]}
    present = {
        f"{name.lower().replace('_', '-')}@{version}"
        for path in installed.rglob("*.dist-info")
        for name, version in [path.name.removesuffix(".dist-info").split("-")]
    }

    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "gpucheck-cluster"
    assert rows.keys() == present - {"gpucheck-cluster@0.1.0"}
    hashes = [reference.get("hashes") for row in rows.values() for reference in row["externalReferences"]]
    assert len(hashes) >= len(rows)
    assert all(hashes)


def test_tests_run_from_the_source_distribution(release, tmp_path):
    with tarfile.open(only(release, "gpucheck_cluster-*.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    top = tmp_path / "gpucheck_cluster-0.1.0"
    files = ["tests/model", "tests/test_printable.py", "tests/cli/test_help.py", "tests/playbooks/test_python_wheel.py"]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/t", *files]

    done = subprocess.run(words, cwd=top, capture_output=True, text=True, check=False, timeout=END_S)

    assert done.returncode == 0, done.stdout[-3000:]
    assert source.tracked(top) == source.tracked(TOP)
    assert "Name: gpucheck-cluster\n" in (top / "PKG-INFO").read_text()
