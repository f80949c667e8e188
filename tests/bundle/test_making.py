"""From collected packages to a bundle that real apt and dnf tools can read: the whole way, without a host."""

import gzip
import json
import lzma
import pathlib
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from gpucheck.bundle import contents, making, publisher, wheels
from gpucheck.bundle.errors import BundleError
from gpucheck.bundle.folder import described, verify
from gpucheck.bundle.signing import Signer, gpg
from gpucheck.bundle.text import manifest_text
from gpucheck.stack.lock import write_lock
from gpucheck.stack.plan import Plan, plan
from gpucheck.stack.spec import Repository
from tests.bundle.site import WHEEL, site_lock

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("apt-ftparchive", "dpkg-deb"))), reason="apt-ftparchive and dpkg-deb are not installed"
)
GROUP = "ubuntu-22.04-x86_64-15f8x2"
SOURCES = ("nvidia-cuda", "nvidia-container-toolkit")


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


HOMES: list[pathlib.Path] = []


@pytest.fixture(scope="module", autouse=True)
def agents():
    """No agent of gpg stays behind."""
    yield
    for home in HOMES:
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False, capture_output=True)


def publishers_key(home):
    """A publisher's key, in a gpg home of its own."""
    home.mkdir(mode=0o700)
    HOMES.append(home)
    gpg(home, "--passphrase", "", "--quick-gen-key", "publisher", "rsa2048", "sign", "never")
    listed = gpg(home, "--with-colons", "--list-keys").splitlines()
    return Signer(home, next(row.split(":")[9] for row in listed if row.startswith("fpr")))


def publish_apt(folder, signing):
    """The signed lists of a repository with the collected packages, as the host brings them; returns their names."""
    for name in ("metadata", "keys"):
        (folder / name).mkdir(exist_ok=True)
    listing = subprocess.run(
        ["apt-ftparchive", "packages", "."], cwd=folder / "packages", check=True, capture_output=True
    )
    (folder / "metadata/0001.Packages").write_bytes(listing.stdout)
    served = folder.parent.parent / "served"
    served.mkdir(exist_ok=True)
    (served / "Packages").write_bytes(listing.stdout)
    release = subprocess.run(["apt-ftparchive", "release", "."], cwd=served, check=True, capture_output=True).stdout
    (folder.parent.parent / "Release").write_bytes(release)
    signing.sign("--clearsign", "--output", folder / "metadata/0000.InRelease", folder.parent.parent / "Release")
    for name in SOURCES:
        (folder / f"keys/{name}.gpg").write_bytes(b"")
        signing.sign("--output", folder / f"keys/{name}.gpg", "--export", signing.fingerprint)
    return ["metadata/0000.InRelease", "metadata/0001.Packages", *(f"keys/{name}.gpg" for name in SOURCES)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """(lock file, what a host collected): as the playbook leaves them."""
    root = tmp_path_factory.mktemp("site")
    signing = publishers_key(root / "gpg")
    pins = {name: Repository(key_fingerprint=signing.fingerprint) for name in SOURCES}
    lock = site_lock(repositories=pins)
    (root / "stack.lock.yml").write_text(write_lock(lock))
    found = plan(lock, group=GROUP)
    assert isinstance(found, Plan)
    rows = []
    for package in [*contents.planned(found), {"name": "libdependency1", "version": "1:2-1"}]:
        version = package["version"] or "1-1"
        path = deb(root / f"collected/{GROUP}/packages", package["name"], version)
        rows.append({"name": package["name"], "version": version, "arch": "all", "file": path.name})
        rows[-1].update(msgspec.to_builtins(described(path)))
    answer = {
        "order": msgspec.to_builtins(contents.order(found, "lab-apt")),
        "packages": rows,
        "not_offered": ["python3-apt"],
        "modules": [],
        "metadata": publish_apt(root / f"collected/{GROUP}", signing),
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
    shutil.copytree(site, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("gpg"))
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

    with pytest.raises(BundleError, match="contains other files and is not a bundle"):
        make(made, target=made / "other")
    assert (made / "other/thesis.txt").exists()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            lambda r: next((r / f"collected/{GROUP}/packages").glob("libnccl2_*")).write_bytes(b"half"),
            "differs from what the host collected",
        ),
        (lambda r: next((r / f"collected/{GROUP}/packages").glob("libnccl2_*")).unlink(), "did not arrive"),
        (lambda r: (r / f"collected/{GROUP}.json").write_text("{}"), "not a response of bundle_packages"),
        (lambda r: (r / f"collected/{GROUP}.json").unlink(), "contains no collected packages"),
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
    with pytest.raises(BundleError, match="contains group"):
        make(made)


# Packages against the indexes that their publisher signed


def sign_again(root, home, text=None):
    """InRelease of the served lists, by the key in this gpg home."""
    fingerprint = next(
        r.split(":")[9] for r in gpg(home, "--with-colons", "--list-keys").splitlines() if r[:3] == "fpr"
    )
    if text is not None:
        (root / "Release").write_bytes(text)
    target = root / f"collected/{GROUP}/metadata/0000.InRelease"
    Signer(home, fingerprint).sign("--clearsign", "--output", target, root / "Release")


def test_the_manifest_says_which_key_vouches_for_the_packages(made):
    manifest = make(made)

    (verified,) = [system.verified for system in manifest.systems.values()]
    (key,) = verified.by_key
    assert verified.by_key[key] == sum(map(len, manifest.systems["ubuntu-22.04-x86_64"].versions.values()))
    assert verified.unverified == ()
    assert f"verified with key {key}" in manifest_text(manifest)


def unsigned_package(root):
    """The collecting host exchanges a package and describes the new one well."""
    path = root / f"collected/{GROUP}.json"
    answer = json.loads(path.read_text())
    row = next(row for row in answer["packages"] if row["name"] == "libdependency1")
    file = root / f"collected/{GROUP}/packages/{row['file']}"
    file.write_bytes(file.read_bytes() + b"trojan")
    row.update(msgspec.to_builtins(described(file)))
    path.write_text(json.dumps(answer))


def other_key(root):
    publishers_key(root / "other")
    sign_again(root, root / "other")


def changed_index(root):
    path = root / f"collected/{GROUP}/metadata/0001.Packages"
    path.write_text(path.read_text() + "\n")


def unsigned_release(root):
    (root / f"collected/{GROUP}/metadata/0000.InRelease").write_bytes((root / "Release").read_bytes())


def text_around_the_release(root):
    path = root / f"collected/{GROUP}/metadata/0000.InRelease"
    path.write_bytes(b"SHA256:\n 00 1 Packages\n" + path.read_bytes())


@pytest.mark.parametrize(
    "attack", [unsigned_package, other_key, changed_index, unsigned_release, text_around_the_release]
)
def test_a_package_that_no_trusted_key_vouches_for_makes_no_bundle(made, attack):
    attack(made)

    with pytest.raises(BundleError, match=r"not in an index signed by a trusted key: .*bundle_accept_unverified"):
        make(made)
    assert not (made / "bundle").exists()


def test_a_site_may_accept_packages_or_trust_a_further_key(made):
    unsigned_package(made)
    manifest = make(made, trust=making.Trust(unverified=("libdependency*",)))
    (verified,) = [system.verified for system in manifest.systems.values()]
    assert verified.unverified == ("libdependency1",)
    assert "unverified, accepted by bundle_accept_unverified: libdependency1" in manifest_text(manifest)


def test_an_index_of_a_further_publisher_needs_its_key_on_this_machine(made):
    signing = publishers_key(made / "other")
    sign_again(made, made / "other")
    signing.public(made / "distribution.asc")

    manifest = make(made, trust=making.Trust(keys=(made / "distribution.asc",)))
    assert list(manifest.systems["ubuntu-22.04-x86_64"].verified.by_key) == [signing.fingerprint]


def test_a_key_that_is_not_the_pinned_one_ends_the_bundle(made):
    signing = publishers_key(made / "other")
    signing.sign("--output", made / f"collected/{GROUP}/keys/nvidia-cuda.gpg", "--export", signing.fingerprint)

    with pytest.raises(BundleError, match=f"contains key {signing.fingerprint}, pinned is"):
        make(made)


def test_a_genuine_package_under_another_name_or_version_is_refused(made):
    """An old, vulnerable version is as well signed as the planned one."""
    path = made / f"collected/{GROUP}.json"
    answer = json.loads(path.read_text())
    next(row for row in answer["packages"] if row["name"] == "libdependency1")["version"] = "1:3-1"
    path.write_text(json.dumps(answer))

    with pytest.raises(BundleError, match=r"calls it libdependency1 1:3-1 all, its publisher libdependency1 1:2-1 all"):
        make(made)


PRIMARY = """<?xml version="1.0" encoding="UTF-8"?>
<metadata xmlns="http://linux.duke.edu/metadata/common" packages="1"><package type="rpm"><name>libnccl</name>
<arch>x86_64</arch><version epoch="{epoch}" ver="2.30.7" rel="1+cuda13.0"/>
<checksum type="sha256" pkgid="YES">{digest}</checksum></package></metadata>
"""


@pytest.mark.skipif(not shutil.which("modifyrepo_c"), reason="createrepo_c is not installed")
@pytest.mark.parametrize(("epoch", "version"), [("0", "2.30.7-1+cuda13.0"), ("3", "3:2.30.7-1+cuda13.0")])
def test_an_index_of_rpm_packages_counts_with_its_signature_alone(tmp_path, epoch, version):
    """repomd.xml as createrepo_c writes it."""
    signing = publishers_key(tmp_path / "gpg")
    repository, folder = tmp_path / "repository", tmp_path / "collected"
    (folder / "metadata").mkdir(parents=True)
    repository.mkdir()
    run = {"check": True, "capture_output": True}
    subprocess.run(["createrepo_c", "--quiet", "--general-compress-type=gz", repository], **run)
    (tmp_path / "primary.xml").write_text(PRIMARY.format(digest="ab" * 32, epoch=epoch))
    words = ["modifyrepo_c", "--compress-type=gz", "--mdtype=primary", tmp_path / "primary.xml"]
    subprocess.run([*words, repository / "repodata"], **run)
    repomd = folder / "metadata/0000.repomd.xml"
    shutil.copy(repository / "repodata/repomd.xml", repomd)
    for number, path in enumerate((repository / "repodata").glob("*primary.xml.gz")):
        shutil.copy(path, folder / f"metadata/{number:04}.primary.xml.gz")
    signing.detached(repomd, repomd.with_name("0000.repomd.xml.asc"))
    signing.sign("--output", tmp_path / "gpg/trusted.gpg", "--export")
    names = [f"metadata/{path.name}" for path in (folder / "metadata").iterdir()]

    found = publisher.published(tmp_path / "gpg/trusted.gpg", folder, names)
    wanted = publisher.Published(name="libnccl", version=version, arch="x86_64", key=signing.fingerprint)
    assert found == {"ab" * 32: wanted}

    repomd.write_bytes(repomd.read_bytes() + b"<!-- -->")
    assert publisher.published(tmp_path / "gpg/trusted.gpg", folder, names) == {}


INDEXES = Path(__file__).parent.parent / "data/repositories/indexes/nvidia.github.io/nvidia-docker"


@pytest.mark.parametrize(
    ("files", "package"),
    [
        ({"0000.InRelease": "ubuntu18.04/amd64/InRelease", "0001.Packages": "ubuntu18.04/amd64/Packages.xz"}, "all"),
        (
            {
                "0000.repomd.xml": "centos8/x86_64/repodata/repomd.xml",
                "0000.repomd.xml.asc": "centos8/x86_64/repodata/repomd.xml.asc",
                "0001.primary.xml.gz": "centos8/x86_64/repodata/*-primary.xml.gz",
            },
            "noarch",
        ),
    ],
)
def test_nvidias_own_signed_indexes_vouch_with_sha_512(tmp_path, files, package):
    """The container toolkit's repositories state no SHA-256. Files: NVIDIA/nvidia-docker, gh-pages."""
    home, folder = tmp_path / "gpg", tmp_path / "collected"
    home.mkdir(mode=0o700)
    (folder / "metadata").mkdir(parents=True)
    for name, source in files.items():
        content = next(INDEXES.glob(source)).read_bytes()
        (folder / "metadata" / name).write_bytes(lzma.decompress(content) if source.endswith(".xz") else content)
    subprocess.run(["gpg", "--homedir", home, "--import", INDEXES / "gpgkey"], check=True, capture_output=True)
    subprocess.run(["gpg", "--homedir", home, "-o", home / "trusted.gpg", "--export"], check=True, capture_output=True)

    found = publisher.published(home / "trusted.gpg", folder, [f"metadata/{name}" for name in files])

    assert {row.key for row in found.values()} == {"C95B321B61E88C1809C4F759DDCAE044F796ECB0"}
    assert package in {row.arch for row in found.values() if row.name == "nvidia-docker2"}
