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
    return new_key(home, "publisher")


def new_key(home, name, *options, expires="never"):
    """A further key in a gpg home. options: of gpg."""
    gpg(home, *options, "--passphrase", "", "--quick-gen-key", name, "rsa2048", "sign", expires)
    listed = gpg(home, "--with-colons", "--list-keys", name).splitlines()
    return Signer(home, next(row.split(":")[9] for row in listed if row.startswith("fpr")))


def publish_apt(folder, signing, first=0, sources=SOURCES):
    """The signed lists of a repository with the collected packages, as the host brings them; returns their names.

    first: the number of the first list. sources: repositories whose key file holds the key that signs.
    """
    for name in ("metadata", "keys"):
        (folder / name).mkdir(exist_ok=True)
    listing = subprocess.run(
        ["apt-ftparchive", "packages", "."], cwd=folder / "packages", check=True, capture_output=True
    )
    names = [f"metadata/{first:04}.InRelease", f"metadata/{first + 1:04}.Packages"]
    served, release = folder.parent.parent / f"served{first}", folder.parent.parent / f"Release{first}"
    served.mkdir()
    for path in (folder / names[1], served / "Packages"):
        path.write_bytes(listing.stdout)
    words = ["apt-ftparchive", "release", "."]
    release.write_bytes(subprocess.run(words, cwd=served, check=True, capture_output=True).stdout)
    signing.sign("--clearsign", "--output", folder / names[0], release)
    for name in sources:
        (folder / f"keys/{name}.gpg").unlink(missing_ok=True)
        signing.sign("--output", folder / f"keys/{name}.gpg", "--export", signing.fingerprint)
    return [*names, *(f"keys/{name}.gpg" for name in sources)]


def make(root, **changes):
    """The bundle of the site."""
    words = {"target": root / "bundle", "lock_file": root / "stack.lock.yml", "collected": root / "collected"}
    return making.make(**{**words, "wheel": WHEEL, "key": "", "say": lambda line: None, **changes})
