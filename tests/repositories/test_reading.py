"""Indexes: real ones are read, and one that is cut off, changed, unsigned, expired or of another system is rejected."""

import gzip
import hashlib
import os
import re
import shutil
import subprocess
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.repositories.fetching import Network, saved
from gpucheck.repositories.index import Relation, UnusableIndex, compare_of, deb_compare, newest_first, rpm_compare
from gpucheck.repositories.reading import read_index
from tests.playbooks.stubs import script
from tests.repositories import mirror
from tests.repositories.conftest import NOW
from tests.repositories.mirror import Made

REAL = Path(__file__).parent.parent / "data/repositories/indexes"
BASE = "https://nvidia.github.io/nvidia-docker/"
NVIDIA = {
    "name": "t",
    "key_url": f"{BASE}gpgkey",
    "key_fingerprint": "C95B321B61E88C1809C4F759DDCAE044F796ECB0",
    "suite": "/",
    "signed": "metadata",
}


def real(url, kind, arch, **changes):
    row = NVIDIA | {"url": BASE + url, "kind": kind} | changes
    return read_index(row, arch, saved(REAL), datetime.now(timezone.utc))


@pytest.mark.parametrize(
    ("url", "kind", "arch", "count", "newest"),
    [
        ("ubuntu18.04/amd64", "apt", "x86_64", 25, "2.6.0-1"),
        ("ubuntu18.04/arm64", "apt", "sbsa", 4, "2.6.0-1"),
        ("debian10/amd64/", "apt", "x86_64", 6, "2.6.0-1"),
        ("centos8/x86_64/", "dnf", "x86_64", 54, "2.6.0-1"),
    ],
)
def test_nvidias_own_repositories_are_read_with_their_signature(url, kind, arch, count, newest):
    """Signed by the key that is pinned for the container toolkit."""
    index = real(url, kind, arch)

    assert index.signed_by == NVIDIA["key_fingerprint"]
    assert len(index) == count
    assert newest in {one.version for one in index.packages["nvidia-docker2"]}


def test_alternatives_and_versions_of_a_real_dependency_are_read():
    newest = max(real("ubuntu18.04/arm64", "apt", "sbsa").packages["nvidia-docker2"], key=lambda one: one.version)
    (docker,) = (row for row in newest.requires if len(row) > 1)
    assert Relation("docker.io", ">=", "18.06.0") in docker


def test_a_real_repository_whose_key_file_is_pinned_by_its_digest_is_read():
    key = (REAL / "nvidia.github.io/nvidia-docker/gpgkey").read_bytes()
    digest = hashlib.sha256(re.sub(rb"(?m)^Version.*\n", b"", key)).hexdigest()

    assert real("centos8/x86_64", "dnf", "x86_64", key_fingerprint=f"sha256:{digest}").signed_by
    with pytest.raises(UnusableIndex, match=r"pinned is SHA256:AAAA"):
        real("centos8/x86_64", "dnf", "x86_64", key_fingerprint=f"sha256:{'A' * 64}")


PACKAGES = [Made("nvidia-utils-580", "580.178.04-1ubuntu1", "libc6 (>= 2.27), a | b (<< 3)"), Made("other", "1-1")]
RPMS = [Made("nvidia-driver-cuda", "3:580.178.04-1.el9", "nvidia-persistenced (= 3:580.178.04)"), Made("other", "1-1")]


@pytest.fixture
def made(tmp_path, publisher):
    """(root, row of the plan) by kind; both repositories are good."""
    mirror.apt(tmp_path / "apt", publisher, PACKAGES)
    mirror.dnf(tmp_path / "dnf", publisher, RPMS)
    return {kind: (tmp_path / kind, publisher.row(tmp_path / kind, kind)) for kind in ("apt", "dnf")}


def read(row, arch="x86_64", now=NOW):
    return read_index(row, arch, Network(seconds=5).get, now)


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_a_good_repository_is_read(made, publisher, kind):
    index = read(made[kind][1])

    assert index.signed_by == publisher.fingerprint
    assert len(index) == 2
    assert index.made.startswith("2025-11-22")
    name = {"apt": "nvidia-utils-580", "dnf": "nvidia-driver-cuda"}[kind]
    (package,) = index.packages[name]
    assert package.size == 1000
    assert len(package.requires) == {"apt": 2, "dnf": 1}[kind]


def cut(content):
    return content[:-20]


def flipped(content):
    """Return the content with its last bit changed."""
    return content[:-1] + bytes([content[-1] ^ 1])


# (kind, file, its content in the damaged repository or None for a missing file, message)
DAMAGED = [
    ("apt", "Packages.xz", cut, "Packages.xz is cut off: [0-9]+ of [0-9]+ bytes"),
    ("apt", "Packages.xz", flipped, "its checksum differs"),
    ("apt", "InRelease", lambda text: text.replace(b"NVIDIA", b"NVIDIA\nLabel: x"), "the signature does not match"),
    ("apt", "InRelease", lambda text: b"SHA256:\n 00 1 Packages\n" + text, "InRelease is not one signed message"),
    ("apt", "InRelease", lambda text: text * 2, "InRelease is not one signed message"),
    (
        "apt",
        "InRelease",
        lambda text: text.partition(b"-----BEGIN PGP SIGNATURE")[0],
        "InRelease is not one signed message|no valid signature",
    ),
    ("apt", "key.asc", lambda _: b"no key", "holds no OpenPGP key"),
    ("dnf", "repodata/*primary*", cut, "its checksum differs"),
    ("dnf", "repodata/repomd.xml", lambda text: text.replace(b"<revision>1", b"<revision>2"), "does not match"),
    ("dnf", "repodata/repomd.xml", cut, "the signature does not match"),
    ("dnf", "repodata/repomd.xml.asc", None, "it is not signed: there is no .*repomd.xml.asc"),
]


@pytest.mark.parametrize(("kind", "name", "change", "message"), DAMAGED)
def test_damaged_repository_is_rejected(made, kind, name, change, message):
    root, row = made[kind]
    (path,) = root.glob(name)
    if change:
        path.write_bytes(change(path.read_bytes()))
    else:
        path.unlink()

    with pytest.raises(UnusableIndex, match=message) as error:
        read(row)
    assert error.value.rejected
    assert error.value.do


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_a_signature_by_another_key_is_rejected(made, tmp_path, stranger, kind):
    """The key file is the pinned one; the index is signed by somebody else."""
    root, row = made[kind]
    key = (root / "key.asc").read_bytes()
    getattr(mirror, kind)(root, stranger, PACKAGES if kind == "apt" else RPMS)
    (root / "key.asc").write_bytes(key)

    with pytest.raises(UnusableIndex, match=f"signed with key {stranger.fingerprint[-16:]}, which is not the pinned"):
        read(row)


def test_a_further_key_in_the_key_file_is_rejected(made, stranger):
    root, row = made["apt"]
    (root / "key.asc").write_bytes((root / "key.asc").read_bytes() + stranger.key)

    with pytest.raises(UnusableIndex, match=f"holds key {stranger.fingerprint}; pinned is"):
        read(row)


def test_another_architecture_is_rejected(made):
    with pytest.raises(UnusableIndex, match="it is for amd64, and the hosts are arm64"):
        read(made["apt"][1], arch="sbsa")


def test_a_publisher_that_signs_packages_only_is_read_without_a_signature(made):
    root, row = made["dnf"]
    (root / "repodata/repomd.xml.asc").unlink()

    assert read(row | {"signed": "packages"}).signed_by is None


DOCTYPE = b'<?xml version="1.0"?><!DOCTYPE m [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><metadata>&b;</metadata>'


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (DOCTYPE, "declares a document type"),
        (b"<metadata>" + b"<a>" * 5000, "nests deeper"),
        (b"<metadata><package>", "is cut off"),
        (b"", "is cut off"),
        (b"not XML", "is not XML"),
        (b"<metadata/>", "holds no package"),
    ],
)
def test_a_hostile_primary_list_is_rejected_even_if_it_is_signed(made, publisher, content, words):
    root, row = made["dnf"]
    mirror.primary(root, publisher, gzip.compress(content))

    with pytest.raises(UnusableIndex, match=words):
        read(row)


def test_a_list_that_unpacks_to_too_much_is_rejected(made, publisher, monkeypatch):
    from gpucheck.repositories import reading

    monkeypatch.setattr(reading, "MOST_UNPACKED", 1 << 20)
    root, row = made["dnf"]
    mirror.primary(root, publisher, gzip.compress(b" " * (8 << 20)))

    with pytest.raises(UnusableIndex, match="unpacks to more than 1 MiB"):
        read(row)


def test_gpg_that_imports_a_key_and_fails_is_enough(made, tmp_path, monkeypatch):
    """Without gpg-agent, as on a minimal host, gpg --import succeeds and exits with 2."""
    shim = tmp_path / "bin/gpg"
    shim.parent.mkdir()
    script(shim, f'#!/bin/sh\n{shutil.which("gpg")} "$@"\ncase " $* " in *" --import "*) exit 2;; esac\n')
    monkeypatch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")

    assert len(read(made["apt"][1])) == 2


RECORDED = Path(__file__).parent.parent / "data/rpmvercmp.tsv"
RPM = [line.split("\t") for line in RECORDED.read_text().splitlines() if not line.startswith("#")]
DEB = ["580.178.04-1ubuntu1", "580.95.05-0ubuntu1", "1:3.3.0-1", "3.4.0-1", "610-2ubuntu1", "1.0", "1.0-0", "1.0~rc1"]
DEB += ["1.0+b1", "1.0a", "1.0-1+deb12u1", "1.0-1~bpo12+1", "2.30.7-1+cuda13.3", "2.30.7-1+cuda12.9", "9.9", "9.10"]
DEB += ["01.0"]


def sign(number):
    return (number > 0) - (number < 0)


def test_rpm_order_is_that_of_rpm_itself():
    wrong = [row for row in RPM if sign(rpm_compare(row[0], row[2])) != int(row[1])]
    assert len(RPM) > 400
    assert wrong == []


@pytest.mark.skipif(not shutil.which("dpkg"), reason="dpkg is not installed")
def test_deb_order_is_that_of_dpkg():
    """One shell asks for all pairs, and prints those that dpkg orders otherwise."""
    operators = {-1: "lt", 0: "eq", 1: "gt"}
    pairs = [(a, operators[sign(deb_compare(a, b))], b) for a in DEB for b in DEB]
    script = "\n".join(f"dpkg --compare-versions '{a}' {how} '{b}' || echo '{a} {how} {b}'" for a, how, b in pairs)
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("kind", ["apt", "dnf"])
@given(versions=st.lists(st.from_regex(r"([0-9]:)?[0-9a-z.+~]{1,8}(-[0-9a-z.+~]{1,4})?", fullmatch=True), max_size=4))
def test_the_order_is_total(kind, versions):
    compare = compare_of(kind)
    for a in versions:
        assert compare(a, a) == 0
        for b in versions:
            assert sign(compare(a, b)) == -sign(compare(b, a))
    ordered = newest_first(set(versions), kind)
    assert all(compare(a, b) >= 0 for a, b in pairwise(ordered))


def test_a_dependency_without_a_release_takes_any_release():
    assert rpm_compare("3:580.178.04-1.el9", "3:580.178.04") == 0
    assert rpm_compare("580.178.04-1.el9", "3:580.178.04") < 0
