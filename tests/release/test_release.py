"""Two builds of one state of the sources are equal, and what they hold runs without a compiler and without root."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from release import source
from release.vendored import this_python
from tests.shared import made_once

TOP = Path(__file__).parents[2]
PYTHON = this_python()
DATE = "1800000000"
pytestmark = pytest.mark.slow
MACHINE = os.uname().machine


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    """Two releases of the same files, made in different directories, time zones, languages and umasks."""
    folder = made_once(tmp_path_factory, "releases", make_twice)
    return [folder / "one/out", folder / "another-place/out"]


def make_twice(folder):
    for name, umask, surroundings in (
        ("one", 0o022, {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1"}),
        ("another-place", 0o077, {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "2"}),
    ):
        top = folder / name
        top.mkdir()
        source.copy(TOP, source.tracked(TOP), top / "checkout")
        words = [sys.executable, "-m", "release", top / "out", "--machine", MACHINE, "--python", PYTHON]
        done = subprocess.run(
            words,
            cwd=top / "checkout",
            env={**os.environ, **surroundings, "SOURCE_DATE_EPOCH": DATE},
            capture_output=True,
            text=True,
            check=False,
            umask=umask,
            timeout=350,
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def release(twice):
    return twice[0]


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def test_two_builds_are_equal(twice):
    one, other = ({p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(f.iterdir())} for f in twice)

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


def runs(command: Path, environment: dict[str, str]) -> None:
    """The command tells its version, and verifies this host: UNKNOWN on one without GPUs, and never a crash."""
    told = subprocess.run([command, "--version"], env=environment, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout, told.stderr) == (0, "gpucheck, version 0.1.0\n", "")

    words: list[str | Path] = [command, "verify", "--level", "quick", "--format", "json"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)
    report = json.loads(done.stdout)
    assert done.returncode in (0, 1, 2, 3), done.stderr
    assert (report["schema"], report["versions"]["gpucheck"]) == ("gpucheck.report/1", "0.1.0")
    assert not [row for row in report["findings"] if "broke" in (row["why"] or "")]

    words = [command, "topo", "--simulate", "p100-pcie-x2"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "needs a C compiler" in done.stderr


def test_the_wheel_runs_in_an_empty_environment(release, tmp_path, no_compiler):
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv"], check=True)
    install = ["pip", "install", "--quiet", "--python", tmp_path / "venv/bin/python", "--only-binary", ":all:"]
    limits = ["--constraint", TOP / "constraints.txt"]
    subprocess.run([*uv, *install, *limits, only(release, "*.whl")], check=True, capture_output=True)

    runs(tmp_path / "venv/bin/gpucheck", no_compiler)


def unpacked(deb: Path, folder: Path) -> Path:
    """The files of a .deb: the third member of a Unix archive, whose headers are 60 bytes long."""
    content, place, members = deb.read_bytes(), 8, {}
    while place < len(content):
        name, size = content[place : place + 16].decode().strip(), int(content[place + 48 : place + 58])
        members[name] = content[place + 60 : place + 60 + size]
        place += 60 + size + size % 2
    assert list(members) == ["debian-binary", "control.tar.gz", "data.tar.gz"]
    with tarfile.open(fileobj=io.BytesIO(members["data.tar.gz"])) as archive:
        archive.extractall(folder, filter="tar")
    return folder


@pytest.fixture(scope="module")
def installed(release, tmp_path_factory):
    return unpacked(only(release, "*.deb"), tmp_path_factory.mktemp("deb"))


@pytest.mark.skipif(not Path(f"/usr/bin/python{PYTHON}").exists(), reason=f"/usr/bin/python{PYTHON} is missing")
def test_the_deb_runs_in_an_empty_folder(release, tmp_path, no_compiler):
    runs(unpacked(only(release, "*.deb"), tmp_path) / "usr/bin/gpucheck", no_compiler)


def test_the_deb_says_what_is_missing_on_a_host_without_a_python(installed, tmp_path, no_compiler):
    shutil.copytree(installed / "usr/bin", tmp_path / "bin")
    (tmp_path / "lib/gpucheck-cluster/python3.11/bin").mkdir(parents=True)

    done = subprocess.run([tmp_path / "bin/gpucheck"], env=no_compiler, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (70, "")
    assert "Error: gpucheck needs /usr/bin/python3.10 or newer" in done.stderr


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")
def test_dpkg_reads_the_deb(release):
    deb = only(release, "*.deb")
    told = subprocess.run(["dpkg-deb", "--info", deb], capture_output=True, text=True, check=True).stdout
    listed = subprocess.run(["dpkg-deb", "--contents", deb], capture_output=True, text=True, check=True).stdout

    assert " Package: gpucheck-cluster\n Version: 0.1.0\n" in told
    assert all(line.split()[1] == "root/root" for line in listed.splitlines())


@pytest.mark.skipif(shutil.which("rpmbuild") is None, reason="rpmbuild is not installed")
def test_the_rpm_has_the_files_of_the_deb(release, installed):
    words = ["rpm", "--dbpath", "/nonexistent", "-qp", "--qf", "[%{FILEMODES:perms} %{FILEUSERNAME} %{FILENAMES}\n]"]
    rows = subprocess.run(
        [*words, only(release, "*.rpm")], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    files = {row.split()[2] for row in rows if not row.startswith("d")}

    assert files == {f"/{p.relative_to(installed)}" for p in installed.rglob("*") if p.is_symlink() or p.is_file()}
    assert {row.split()[1] for row in rows} == {"root"}


def test_the_bill_of_materials_lists_what_the_packages_hold(release, installed):
    bill = json.loads(only(release, "*.cdx.json").read_text())
    rows = {row["purl"]: row for row in [bill["metadata"]["component"], *bill["components"]]}
    present = {
        f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
        for path in installed.rglob("*.dist-info")
        for name, version in [path.name.removesuffix(".dist-info").split("-")]
    }

    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert rows.keys() == present
    assert all(row["hashes"] and row["name"] and row["version"] for row in rows.values())


def test_tests_run_from_the_source_distribution(release, tmp_path):
    with tarfile.open(only(release, "gpucheck_cluster-*.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    top = tmp_path / "gpucheck_cluster-0.1.0"
    files = ["tests/test_printable.py", "tests/cli/test_help.py", "tests/playbooks/test_python_wheel.py"]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/t", *files]

    done = subprocess.run(words, cwd=top, capture_output=True, text=True, check=False, timeout=300)

    assert done.returncode == 0, done.stdout[-3000:]
    assert source.tracked(top) == source.tracked(TOP)
    assert "Name: gpucheck-cluster\n" in (top / "PKG-INFO").read_text()
