"""From collected packages to a bundle that real apt and dnf tools can read: the whole way, without a host."""

import gzip
import json
import shutil
import subprocess

import msgspec
import pytest

from gpucheck.bundle import contents, making, wheels
from gpucheck.bundle.errors import BundleError
from gpucheck.bundle.folder import described, verify
from gpucheck.bundle.text import manifest_text
from gpucheck.stack.lock import write_lock
from gpucheck.stack.plan import Plan, plan
from tests.bundle.site import WHEEL, site_lock

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("apt-ftparchive", "dpkg-deb"))), reason="apt-ftparchive and dpkg-deb are not installed"
)
GROUP = "ubuntu-22.04-x86_64-15f8x2"


def deb(folder, name, version):
    """A small package."""
    control = folder.parent / "control" / name / "DEBIAN"
    control.mkdir(parents=True)
    fields = {"Package": name, "Version": version, "Architecture": "all", "Maintainer": "x <x@x>", "Description": "x"}
    (control / "control").write_text("".join(f"{key}: {value}\n" for key, value in fields.items()))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}_{version.rpartition(':')[2]}_all.deb"
    subprocess.run(["dpkg-deb", "-b", control.parent, path], check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """(lock file, what a host collected): as the playbook leaves them."""
    root = tmp_path_factory.mktemp("site")
    lock = site_lock()
    (root / "stack.lock.yml").write_text(write_lock(lock))
    found = plan(lock, group=GROUP)
    assert isinstance(found, Plan)
    rows = []
    for package in [*contents.planned(found), {"name": "libdependency1", "version": "1:2-1"}]:
        path = deb(root / f"collected/{GROUP}/packages", package["name"], package["version"])
        rows.append({"name": package["name"], "version": package["version"], "arch": "all", "file": path.name})
        rows[-1].update(msgspec.to_builtins(described(path)))
    answer = {
        "order": msgspec.to_builtins(contents.order(found, "lab-apt")),
        "packages": rows,
        "not_offered": ["python3-apt"],
        "modules": [],
        "python": {"version": "3.11", "glibc": "2.36", "machine": "x86_64"},
        "requirements": "gpucheck\n",
        "pip_args": [],
    }
    (root / f"collected/{GROUP}.json").write_text(json.dumps(answer))
    return root


@pytest.fixture
def made(site, tmp_path, monkeypatch):
    """A copy of the site's collection, and the bundle made from it; pip is not asked."""

    def some(_requirements, _torch, _python, _pip_args, folder):
        folder.mkdir(exist_ok=True)
        (folder / WHEEL.name).write_bytes(b"wheel")
        (tmp_path / "requirements.lock").write_text("click==8.5.1\n")
        return tmp_path / "requirements.lock"

    monkeypatch.setattr(wheels, "download", some)
    shutil.copytree(site, tmp_path, dirs_exist_ok=True)
    return tmp_path


def make(root, **changes):
    """The bundle of the site."""
    words = {"target": root / "bundle", "lock_file": root / "stack.lock.yml", "collected": root / "collected"}
    return making.make(**{**words, "wheel": WHEEL, "key": "", "say": lambda line: None, **changes})


def test_what_was_collected_becomes_a_signed_folder_that_verifies(made):
    manifest = make(made)

    assert verify(made / "bundle") == manifest
    assert list(manifest.groups) == [GROUP]
    system = manifest.systems["ubuntu-22.04-x86_64"]
    assert system.versions["libdependency1"] == ("1:2-1",)
    assert {"libnccl2", "nvidia-dkms-580"} < set(system.versions)
    assert f"ubuntu-22.04-x86_64/wheels/{WHEEL.name}" in manifest.files
    assert (made / "bundle/stack.lock.yml").read_bytes() == (made / "stack.lock.yml").read_bytes()
    assert [path.name for path in made.glob(".bundle*")] == []
    assert "no source offered python3-apt" in manifest_text(manifest)


def test_the_list_of_packages_is_signed_with_the_bundles_key(made):
    """As apt reads it: InRelease vouches for Packages, Packages for every file."""
    manifest = make(made)
    folder = made / "bundle/ubuntu-22.04-x86_64/packages"
    keyring = made / "keyring.gpg"
    subprocess.run(["gpg", "--dearmor", "--output", keyring, made / "bundle/key.asc"], check=True, capture_output=True)
    told = subprocess.run(
        ["gpgv", "--keyring", keyring, folder / "InRelease"], check=True, capture_output=True, text=True
    )

    assert manifest.key in told.stderr
    assert described(folder / "Packages").sha256 in (folder / "InRelease").read_text()
    packages = (folder / "Packages").read_text()
    for path in folder.glob("*.deb"):
        assert f"Filename: ./{path.name}\n" in packages
        assert described(path).sha256 in packages


def test_a_bundle_replaces_a_bundle_and_nothing_else(made):
    make(made)
    shutil.copytree(made / "bundle", made / "again")
    (made / "other").mkdir()
    (made / "other/thesis.txt").write_text("years of work")

    with pytest.raises(BundleError, match="holds other files, and is no bundle to replace"):
        make(made, target=made / "other")
    assert (made / "other/thesis.txt").exists()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda r: next((r / f"collected/{GROUP}/packages").glob("libnccl2_*")).write_bytes(b"half"), "did not arrive"),
        (lambda r: next((r / f"collected/{GROUP}/packages").glob("libnccl2_*")).unlink(), "did not arrive"),
        (lambda r: (r / f"collected/{GROUP}.json").write_text("{}"), "not a response of bundle_packages"),
        (lambda r: (r / f"collected/{GROUP}.json").unlink(), "no host has collected anything"),
    ],
)
def test_half_a_collection_makes_no_bundle(made, damage, words):
    damage(made)

    with pytest.raises(BundleError, match=words):
        make(made)
    assert not (made / "bundle").exists()
    assert list(made.glob(".bundle*")) == []


@pytest.mark.skipif(not shutil.which("createrepo_c"), reason="createrepo_c is not installed")
def test_module_metadata_goes_into_a_dnf_repository(tmp_path):
    """Without it dnf knows no stream, and refuses the packages of one."""
    from gpucheck.bundle.indexes import index_dnf
    from gpucheck.bundle.signing import signer

    folder, modules = tmp_path / "packages", tmp_path / "modules.yaml"
    folder.mkdir()
    document = {"document": "modulemd-defaults", "version": 1, "data": {"module": "m", "stream": "1"}}
    modules.write_text(f"---\n{json.dumps(document)}\n...\n")
    with signer("") as signing:
        index_dnf(folder, signing, [modules])

    (written,) = (folder / "repodata").glob("*modules.yaml.gz")
    assert json.dumps(document) in gzip.decompress(written.read_bytes()).decode()
    assert written.name in (folder / "repodata/repomd.xml").read_text()
    assert (folder / "repodata/repomd.xml.asc").read_text().startswith("-----BEGIN PGP SIGNATURE-----")
    assert not (folder / "modules.yaml").exists()


HOSTILE_NAMES = [
    "../../../evil",
    "/etc/cron.d/x",
    "a/b.deb",
    "..",
    "",
    "a\0.deb",
    "a\n.deb",
    "-x.deb",
    "x" * 300 + ".deb",
]


@pytest.mark.parametrize(
    "change",
    [
        *({"file": name} for name in HOSTILE_NAMES),
        *({"name": name} for name in ("a b", "x\n", "../x")),
        {"version": "1\x1b[2J"},
        {"sha256": "../x"},
        {"bytes": -1},
        {"bytes": 1 << 60},
    ],
    ids=lambda change: repr(change)[:40],
)
def test_a_package_row_of_a_hostile_host_is_refused(made, change):
    path = made / f"collected/{GROUP}.json"
    answer = json.loads(path.read_text())
    answer["packages"][0].update(change)
    path.write_text(json.dumps(answer))

    with pytest.raises(BundleError, match="not a response of bundle_packages"):
        make(made)
    assert not (made / "bundle").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"modules": ["../../../../../../evil/PWNED-fetch"]},
        {"modules": ["modules/../../x-modules.yaml"]},
        {"metadata": ["/etc/passwd"]},
        {"not_offered": ["x\n99 packages verified"]},
        {"python": {"version": "3.11", "glibc": "2.99999999999", "machine": "x86_64"}},
        {"python": {"version": "--index-url", "glibc": "2.36", "machine": "x86_64"}},
        {"python": {"version": "3.11", "glibc": "2.36", "machine": "../x"}},
    ],
    ids=lambda change: repr(change)[:40],
)
def test_another_value_of_a_hostile_host_is_refused(made, change):
    path = made / f"collected/{GROUP}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))

    with pytest.raises(BundleError, match="not a response of bundle_packages"):
        make(made)


def test_a_response_for_another_group_and_a_link_in_place_of_a_package_are_refused(made):
    path = made / f"collected/{GROUP}.json"
    package = next((made / f"collected/{GROUP}/packages").glob("libnccl2_*"))
    package.rename(made / "elsewhere.deb")
    package.symlink_to(made / "elsewhere.deb")
    with pytest.raises(BundleError, match="not a regular file"):
        make(made)

    path.rename(path.with_name("other.json"))
    with pytest.raises(BundleError, match="holds group"):
        make(made)
