"""Packages of a bundle count if an index of a trusted publisher lists them."""

import hashlib
import json
import lzma
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from gpucheck.bundle import contents, making, publisher
from gpucheck.bundle.contents import BundleError, manifest_text
from gpucheck.bundle.folder import described
from gpucheck.repositories.index import Package
from gpucheck.stack.lock import read_lock_file, write_lock
from gpucheck.stack.spec import Repository
from tests.bundle.collecting import GROUP, make, publish_apt, publishers_key

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("apt-ftparchive", "dpkg-deb"))), reason="apt-ftparchive and dpkg-deb are not installed"
)


def sign_again(root, signing):
    """InRelease of the served lists, by another key."""
    signing.sign("--clearsign", "--output", root / f"collected/{GROUP}/metadata/0000.InRelease", root / "Release0")


def test_manifest_names_the_key_that_verified_the_packages(made):
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
    sign_again(root, publishers_key(root / "other"))


def changed_index(root):
    path = root / f"collected/{GROUP}/metadata/0001.Packages"
    path.write_text(path.read_text() + "\n")


def unsigned_release(root):
    (root / f"collected/{GROUP}/metadata/0000.InRelease").write_bytes((root / "Release0").read_bytes())


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
    sign_again(made, signing)
    signing.public(made / "distribution.asc")

    manifest = make(made, trust=making.Trust(keys=(made / "distribution.asc",)))
    assert list(manifest.systems["ubuntu-22.04-x86_64"].verified.by_key) == [signing.fingerprint]


def test_a_key_that_is_not_the_pinned_one_ends_the_bundle(made):
    signing = publishers_key(made / "other")
    signing.sign("--output", made / f"collected/{GROUP}/keys/nvidia-cuda.gpg", "--export", signing.fingerprint)

    with pytest.raises(BundleError, match=f"contains key {signing.fingerprint}, pinned is"):
        make(made)


def test_a_key_file_with_the_pinned_digest_counts_as_its_keys(made, monkeypatch):
    """The plan pins the key's file by its digest, as that of EL 10."""
    digest = hashlib.sha256((made / f"collected/{GROUP}/keys/nvidia-cuda.gpg").read_bytes()).hexdigest()
    changed, sources = {"nvidia-cuda": {"key_fingerprint": f"sha256:{digest}"}}, contents.sources
    rows = lambda plan: tuple({**row, **changed.get(row["name"], {})} for row in sources(plan))  # noqa: E731
    monkeypatch.setattr(contents, "sources", rows)
    verified = make(made).systems["ubuntu-22.04-x86_64"].verified
    assert verified.unverified == ()
    assert len(verified.by_key) == 1


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
    ((key, package),) = found
    assert (key, *package[:3], package.digest) == (signing.fingerprint, "libnccl", version, "x86_64", "ab" * 32)

    repomd.write_bytes(repomd.read_bytes() + b"<!-- -->")
    assert publisher.published(tmp_path / "gpg/trusted.gpg", folder, names) == []


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

    assert {key for key, _ in found} == {"C95B321B61E88C1809C4F759DDCAE044F796ECB0"}
    assert package in {row.arch for _, row in found if row.name == "nvidia-docker2"}


NVIDIA, TOOLKIT, SITE = "A" * 40, "B" * 40, "C" * 40
PLANNED = (
    {"name": "nvidia-cuda", "key_fingerprint": NVIDIA},
    {"name": "nvidia-container-toolkit", "key_fingerprint": TOOLKIT},
)
OWN = {"nvidia-container-toolkit": frozenset({"nvidia-container-toolkit"})}


def row(name, version, key, digest="9" * 64):
    return key, Package(name, version, "amd64", 1, digest=digest)


@pytest.mark.parametrize(
    ("package", "counts"),
    [
        # Its own: also of names that NVIDIA's other repository lists too, in older versions.
        (row("nvidia-container-toolkit", "1.18.1-1", TOOLKIT), True),
        (row("toolkit-dependency", "1-1", TOOLKIT), True),
        (row("libnvidia-compute", "580.1-1", NVIDIA), True),
        (row("toolkit-dependency", "1-1", NVIDIA), True),
        # Another publisher's: in the planned version, and in one that an unversioned dependency would prefer.
        (row("libnvidia-compute", "580.1-1", TOOLKIT), False),
        (row("libnvidia-compute", "999-1", TOOLKIT), False),
        # The distribution: what it has besides, also under a name of NVIDIA's in a version of its own.
        (row("libc6", "2.36-1", SITE), True),
        (row("libnvidia-compute", "580.1-0ubuntu1", SITE), True),
        (row("libnvidia-compute", "580.1-1", SITE), False),
        (row("nvidia-container-toolkit", "1.18.1-1", SITE), False),
    ],
)
def test_a_key_vouches_for_its_own_repository(package, counts):
    genuine = [
        row("libnvidia-compute", "580.1-1", NVIDIA, "1" * 64),
        row("nvidia-container-toolkit", "1.17.0-1", NVIDIA, "2" * 64),
        row("nvidia-container-toolkit", "1.18.1-1", TOOLKIT, "3" * 64),
    ]
    for found in ([*genuine, package], [package, *genuine]):
        assert ("9" * 64 in publisher.vouching(found, PLANNED, OWN)) is counts


def test_a_digest_that_a_second_publisher_lists_too_counts_by_the_first():
    found = [row("libnvidia-compute", "580.1-1", key, "1" * 64) for key in (NVIDIA, TOOLKIT, SITE)]
    for order in (found, found[::-1]):
        assert publisher.vouching(order, PLANNED, OWN)["1" * 64][0] == NVIDIA


def test_a_mirror_that_signs_all_its_repositories_with_one_key_counts_for_all():
    planned = tuple({**one, "key_fingerprint": SITE.lower()} for one in PLANNED)
    found = [row("libnvidia-compute", "580.1-1", SITE, "1" * 64)]
    assert publisher.vouching(found, planned, {})


def test_another_repositorys_key_makes_no_package_of_nvidias_verified(made):
    """The list of a second publisher names a package that NVIDIA's list has, with the digest of another file."""
    folder = made / f"collected/{GROUP}"
    second = publishers_key(made / "second")
    lock = read_lock_file(made / "stack.lock.yml")
    rows = {**lock.spec.repositories, "nvidia-container-toolkit": Repository(key_fingerprint=second.fingerprint)}
    changed = msgspec.structs.replace(lock, spec=msgspec.structs.replace(lock.spec, repositories=rows))
    (made / "stack.lock.yml").write_text(write_lock(changed))
    unsigned_package(made)
    path = made / f"collected/{GROUP}.json"
    answer = json.loads(path.read_text())
    answer["metadata"] += publish_apt(folder, second, 2, ("nvidia-container-toolkit",))[:2]
    path.write_text(json.dumps(answer))

    with pytest.raises(BundleError, match=r"not in an index signed by a trusted key: libdependency1\. A key counts"):
        make(made)
