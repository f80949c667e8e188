"""Installed packages: rows of dpkg, entries of dnf's version lock, and the upstream part of a version."""

from typing import Iterator, List, NamedTuple

from .files import Path, text

VERSIONLOCK = "/etc/dnf/plugins/versionlock.list"
DPKG_FORMAT = "${db:Status-Abbrev}\t${Architecture}\t${Package}\t${Version}\n"
# dpkg's second status letter: i is installed, n and c are absent; the rest is an interrupted transaction.
UNFINISHED = frozenset("HUFWt")


class DpkgRow(NamedTuple):
    """A package that dpkg knows. status: the letters of ``dpkg --list``."""

    name: str
    version: str
    status: str

    @property
    def installed(self) -> bool:
        """Whether it is installed, configured or not."""
        return self.status[1:2] == "i"

    @property
    def held(self) -> bool:
        """Whether ``apt-mark hold`` holds it."""
        return self.status[0:1] == "h"

    @property
    def unfinished(self) -> bool:
        """Whether a transaction was interrupted, or the package has to be installed again."""
        return self.status[1:2] in UNFINISHED or self.status[2:3] == "R"


def dpkg_rows(output: str) -> Iterator[DpkgRow]:
    """Read the output of ``dpkg-query --show --showformat=DPKG_FORMAT``, the native architecture of a package first."""
    for line in output.splitlines():
        status, _, name, version = line.split("\t")
        yield DpkgRow(name, version, status)


def version_locks(path: Path = VERSIONLOCK) -> List[str]:
    """Return the entries of dnf's version lock as the file has them, without comments and exclusions."""
    lines = (line.strip() for line in (text(path) or "").splitlines())
    return [line for line in lines if line and not line.startswith(("#", "!"))]


def upstream(version: str) -> str:
    """Return the upstream part of a full package version: no epoch, no revision."""
    return version.split(":")[-1].split("-")[0]
