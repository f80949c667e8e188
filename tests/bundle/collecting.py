"""What a host collects for a bundle: packages, and indexes that a publisher signed."""

import pathlib
import subprocess

from gpucheck.bundle import making
from gpucheck.bundle.signing import Signer, gpg
from tests.bundle.site import WHEEL

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


def publishers_key(home):
    """A publisher's key, in a gpg home of its own."""
    home.mkdir(mode=0o700)
    HOMES.append(home)
    subprocess.run(["gpg-agent", "--homedir", home, "--quiet", "--daemon"], check=True, stdout=subprocess.DEVNULL)
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


def make(root, **changes):
    """The bundle of the site."""
    words = {"target": root / "bundle", "lock_file": root / "stack.lock.yml", "collected": root / "collected"}
    return making.make(**{**words, "wheel": WHEEL, "key": "", "say": lambda line: None, **changes})
