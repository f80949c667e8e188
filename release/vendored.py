"""The wheels that gpucheck needs, for each supported Python, at the versions and hashes of requirements.lock."""

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement

from gpucheck.bundle.wheels import Interpreter, download_words, fitting
from release.problem import ReleaseError, run
from release.python import metadata

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
# The oldest C library of the packages: RHEL 8 and newer, Debian 10 and newer.
GLIBC = "2.28"


def wheels(own: Path, lock: str, python: str, machine: str, folder: Path) -> list[Path]:
    """Download what a wheel needs, and what that needs, without extras. Ordered by name; the wheel itself is first.

    lock: requirements.lock. machine: x86_64 or aarch64. Raises ReleaseError.
    """
    interpreter = Interpreter(version=python, glibc=GLIBC, machine=machine)  # type: ignore[arg-type]
    rows, found = fitting(lock, interpreter), {_name(own.name.split("-")[0]): own}
    new = [own]
    while new:
        names = sorted({name for wheel in new for name in needed(wheel, python, machine)} - found.keys())
        missing = [name for name in names if name not in rows]
        if missing:
            raise ReleaseError(
                f"requirements.lock does not list {', '.join(missing)}, which the wheel needs on Python {python}. "
                "Run: make requirements.lock"
            )
        new = [_download(rows[name], interpreter, folder) for name in names]
        found |= dict(zip(names, new, strict=True))
    return [own, *(found[name] for name in sorted(found) if found[name] != own)]


def needed(wheel: Path, python: str, machine: str) -> list[str]:
    """Normalized names of what a wheel requires there, without extras."""
    where = {"python_version": python, "python_full_version": f"{python}.0", "platform_machine": machine, "extra": ""}
    where |= {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "implementation_name": "cpython"}
    where |= {"platform_python_implementation": "CPython"}
    required = [Requirement(line) for line in metadata(wheel).get_all("Requires-Dist", [])]
    return [_name(one.name) for one in required if one.marker is None or one.marker.evaluate(where)]


def _download(row: str, python: Interpreter, folder: Path) -> Path:
    name, _, version = row.partition(" ")[0].partition("==")
    stem = f"{_name(name).replace('-', '_')}-{version}-"
    tag = f"cp{python.version.replace('.', '')}"
    with TemporaryDirectory(prefix=".download-", dir=folder) as temporary:
        locked = Path(temporary, "locked.txt")
        locked.write_text(row + "\n", encoding="utf-8")
        words = [*download_words(python, ()), "--require-hashes", "--dest", temporary, "--requirement", locked]
        run(words, what=f"downloading {stem[:-1]} for {tag} on {python.machine}")
        (made,) = Path(temporary).glob("*.whl")
        if not made.name.lower().startswith(stem):
            raise ReleaseError(
                f"{made.name}: a wheel of {row.partition(' ')[0]} was expected. Check the package index."
            )
        return made.rename(folder / made.name)


def _name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip().lower())


def this_python() -> str:
    """``3.11``: of the Python that runs this."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"
