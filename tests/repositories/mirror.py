"""Make a repository in a directory as a publisher does: packages by name, an index, and a signature by its own key."""

import gzip
import hashlib
import lzma
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PRIMARY = """<?xml version="1.0" encoding="UTF-8"?>
<metadata xmlns="http://linux.duke.edu/metadata/common" xmlns:rpm="http://linux.duke.edu/metadata/rpm"
 packages="{count}">
{packages}</metadata>
"""
PACKAGE = """<package type="rpm"><name>{name}</name><arch>{arch}</arch>
<version epoch="{epoch}" ver="{ver}" rel="{rel}"/>
<checksum type="sha256" pkgid="YES">{digest}</checksum><size package="{size}" installed="1" archive="1"/>
<format><rpm:license>x</rpm:license><rpm:provides>{provides}</rpm:provides>
<rpm:requires>{requires}</rpm:requires></format></package>
"""
REPOMD = """<?xml version="1.0" encoding="UTF-8"?>
<repomd xmlns="http://linux.duke.edu/metadata/repo"><revision>1</revision><data type="primary">
<checksum type="sha256">{digest}</checksum><location href="repodata/{digest}-primary.xml.gz"/>
<timestamp>1763800000</timestamp>
</data></repomd>
"""


class Made(NamedTuple):
    """A package to serve. requires, provides: as a control file has them, ``name (= version), other``."""

    name: str
    version: str
    requires: str = ""
    provides: str = ""
    arch: str = ""
    size: int = 1000


class Publisher:
    """A key that signs repositories."""

    def __init__(self, home: Path) -> None:
        home.mkdir(mode=0o700, parents=True)
        self.home = home
        self.gpg("--passphrase", "", "--quick-gen-key", "publisher", "rsa2048", "sign", "never")
        rows = self.gpg("--with-colons", "--list-keys").decode().splitlines()
        self.fingerprint = next(row.split(":")[9] for row in rows if row.startswith("fpr:"))
        self.key = self.gpg("--armor", "--export")

    def gpg(self, *arguments: str | Path) -> bytes:
        words = ["gpg", "--homedir", self.home, "--batch", "--yes", "--no-tty", *arguments]
        return subprocess.run(words, check=True, capture_output=True).stdout

    def row(self, root: Path, kind: str, **changes: str) -> dict[str, str]:
        """The repository as a plan names it."""
        row = {"name": "nvidia-cuda", "kind": kind, "url": root.as_uri() + "/", "key_url": (root / "key.asc").as_uri()}
        more = {"suite": "/"} if kind == "apt" else {"signed": "both"}
        return row | more | {"key_fingerprint": self.fingerprint} | changes


def apt(
    root: Path, publisher: Publisher, packages: Sequence[Made], extra: str = "Date: Sat, 22 Nov 2025 10:00:00 UTC"
) -> None:
    """A flat apt repository: InRelease, Packages.xz, key.asc."""
    root.mkdir(parents=True, exist_ok=True)
    text = "".join(
        f"Package: {one.name}\nVersion: {one.version}\nArchitecture: {one.arch or 'amd64'}\nSize: {one.size}\n"
        + (f"Depends: {one.requires}\n" if one.requires else "")
        + (f"Provides: {one.provides}\n" if one.provides else "")
        + f"Filename: ./{one.name}.deb\nSHA256: {'0' * 64}\nDescription: made for tests\n of several lines\n\n"
        for one in packages
    )
    content = lzma.compress(text.encode())
    (root / "Packages.xz").write_bytes(content)
    release = f"Origin: NVIDIA\n{extra}\nSHA256:\n {hashlib.sha256(content).hexdigest()} {len(content)} Packages.xz\n"
    (root / "Release").write_text(release)
    publisher.gpg("--clearsign", "--output", root / "InRelease", root / "Release")
    (root / "Release").unlink()
    (root / "key.asc").write_bytes(publisher.key)


def dnf(root: Path, publisher: Publisher, packages: Sequence[Made]) -> None:
    """A dnf repository: repodata with a signature, key.asc."""
    (root / "repodata").mkdir(parents=True, exist_ok=True)
    text = PRIMARY.format(count=len(packages), packages="".join(map(_package, packages)))
    primary(root, publisher, gzip.compress(text.encode()))


def primary(root: Path, publisher: Publisher, content: bytes) -> None:
    """The repodata for a primary list with this content, signed."""
    digest = hashlib.sha256(content).hexdigest()
    (root / f"repodata/{digest}-primary.xml.gz").write_bytes(content)
    repomd = root / "repodata/repomd.xml"
    repomd.write_text(REPOMD.format(digest=digest))
    publisher.gpg("--armor", "--detach-sign", "--output", root / "repodata/repomd.xml.asc", repomd)
    (root / "key.asc").write_bytes(publisher.key)


def _package(one: Made) -> str:
    epoch, _, rest = one.version.rpartition(":")
    ver, _, rel = rest.rpartition("-")
    return PACKAGE.format(
        name=one.name,
        arch=one.arch or "x86_64",
        epoch=epoch or "0",
        ver=ver,
        rel=rel,
        digest="0" * 64,
        size=one.size,
        provides=f"{_entries(f'{one.name} (= {one.version})')}{_entries(one.provides)}",
        requires=_entries(one.requires),
    )


def _entries(text: str) -> str:
    flags = {"=": "EQ", ">=": "GE", "<=": "LE", ">": "GT", "<": "LT"}
    found = ""
    for entry in filter(None, map(str.strip, text.split(","))):
        name, _, rest = entry.partition(" (")
        operator, _, version = rest.rstrip(")").partition(" ")
        epoch, _, upstream = version.rpartition(":")
        ver, dash, rel = upstream.rpartition("-")
        more = f' flags="{flags[operator]}" epoch="{epoch or 0}" ver="{ver if dash else rel}"' if operator else ""
        found += f'<rpm:entry name="{name}"{more}' + (f' rel="{rel}"' if operator and dash else "") + "/>"
    return found
