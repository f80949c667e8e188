"""Installed packages and services: one call of the package manager for all names, one of systemctl."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from gpucheck.host.driver import output, run
from gpucheck.host.readers.packages import DPKG_FORMAT, VERSIONLOCK, dpkg_rows, version_locks
from gpucheck.host.readers.programs import units
from gpucheck.host.readers.system import package_family
from gpucheck.model import PackageVersion

# A name as dpkg and rpm allow it; anything else would be read as an option or a pattern.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*")
NOT_FOUND = "not-found"
DPKG_FATAL = 2  # dpkg-query(1): 1 is "a name is not known"


def read_packages(
    release: dict[str, str], system_root: Path, names: Iterable[str]
) -> tuple[PackageVersion, ...] | None:
    """Return the installed ones among ``names``, ordered by name; None where the package database cannot be read.

    The distribution decides whether dpkg or rpm is queried: both may be there.
    """
    wanted = sorted({name for name in names if NAME.fullmatch(name)})
    if not wanted:
        return ()
    return _rpm(wanted, system_root) if package_family(release) == "rpm" else _dpkg(wanted)


def _dpkg(names: list[str]) -> tuple[PackageVersion, ...] | None:
    """`apt-mark hold` is the selection that dpkg calls ``hold``, so that one call is enough."""
    done = run(["dpkg-query", "--show", f"--showformat={DPKG_FORMAT}", *names])
    if done is None or done.returncode >= DPKG_FATAL:
        return None
    found: dict[str, PackageVersion] = {}
    for row in dpkg_rows(done.stdout):
        if row.installed and row.name not in found:
            found[row.name] = PackageVersion(name=row.name, version=row.version, held=row.held)
    return tuple(found[name] for name in sorted(found))


def _rpm(names: list[str], system_root: Path) -> tuple[PackageVersion, ...] | None:
    """Locks are those of dnf's versionlock plugin, which are patterns over name-epoch:version-release.arch.

    rpm calls every package "not installed" when it cannot open its database; only its error output shows that.
    """
    shape = "%{NAME}\t%{EPOCHNUM}\t%{VERSION}-%{RELEASE}\t%{ARCH}\n"
    locks = version_locks(system_root / VERSIONLOCK.lstrip("/"))
    done = run(["rpm", "--query", f"--queryformat={shape}", *names])
    if done is None or any(line.startswith("error:") for line in done.stderr.splitlines()):
        return None
    found: dict[str, PackageVersion] = {}
    for line in done.stdout.splitlines():
        if line.count("\t") != 3:
            continue  # "package X is not installed"
        name, epoch, release, arch = line.split("\t")
        full = release if epoch == "0" else f"{epoch}:{release}"
        spellings = (f"{name}-{epoch}:{release}.{arch}", f"{name}-{release}.{arch}", f"{name}-{release}", name)
        held = any(fnmatchcase(spelling, lock) for lock in locks for spelling in spellings)
        found[name] = PackageVersion(name=name, version=full, held=held)
    return tuple(found[name] for name in sorted(found))


def read_python_packages(names: Iterable[str]) -> dict[str, str | None]:
    """Versions from the metadata that installers leave, without importing anything; None where not installed."""
    return {name: _python_version(name) for name in names}


def _python_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def read_services(names: Iterable[str]) -> dict[str, str | None]:
    """Return systemd's ActiveState by unit name, NOT_FOUND for a unit that it does not know, None without systemd."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    answer = output(["systemctl", "--no-pager", "show", "--property=LoadState,ActiveState", "--", *wanted]) or ""
    blocks = units(answer)
    if len(blocks) != len(wanted):  # systemd is not running, or did not answer for every unit
        return dict.fromkeys(wanted)
    states = (NOT_FOUND if b.get("LoadState") == NOT_FOUND else b.get("ActiveState") for b in blocks)
    return dict(zip(wanted, states, strict=True))
