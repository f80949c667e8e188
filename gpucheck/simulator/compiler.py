"""The simulator's libraries: contained in this installation, or compiled by the system's C compiler and cached."""

import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from gpucheck.simulator.cache import cache_folder, publish, use

# <key>/<library>, in wheels for a platform and in our container images: no compiler is needed there.
SHIPPED = Path(__file__).parent / "libraries"
FLAGS = ("-std=gnu11", "-O2", "-shared", "-fPIC", "-pthread")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


def compile_sources(
    what: str,
    output: Path,
    flags: Iterable[str],
    sources: Iterable[Path],
    needs: str = "",
    compiler: Sequence[str] = (),
) -> Path:
    """Compile a shared library into ``output`` and return it. what: its name in messages. needs: libraries, ``-l...``.

    compiler: its command and options, by default ``cc`` with warnings as errors.
    Raises OSError, with the whole message in args[0], when there is no compiler or it rejects the source.
    """
    if not compiler:
        found = shutil.which("cc")
        if found is None:
            raise OSError(
                f"the simulator needs a C compiler to build its {what} library, and there is no `cc` on PATH. "
                "Install one: apt install gcc libc6-dev, or: dnf install gcc glibc-devel. "
                "The wheels and packages for Linux on x86_64 and aarch64 contain the library"
            )
        compiler = (found, *WARNINGS)
    command = [*compiler, *FLAGS, *flags, "-o", str(output), *map(str, sources), *needs.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(
            f"{compiler[0]} could not compile the simulated {what} library: {done.stderr.strip()[-1000:]}\n"
            "Install the C headers too: apt install libc6-dev, or: dnf install glibc-devel"
        )
    return output


def source_key(parts: Iterable[str], sources: Iterable[Path]) -> str:
    """Return what identifies the library that is compiled from these sources. parts: all else that it depends on."""
    digest = hashlib.sha256(" ".join((*FLAGS, *parts)).encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:24]


def compiled(key: str, name: str, build: Callable[[Path], object]) -> Path:
    """The library ``name`` of this key: shipped, cached, or built into a new entry of the cache.

    Raises OSError as ``build`` does.
    """
    shipped = SHIPPED / key / name
    if shipped.exists():
        return shipped
    folder = cache_folder("libraries") / key
    if not use(folder):
        publish(folder, build)
    return folder / name


def install(library: Path, directory: Path, stem: str, version: str) -> Path:
    """Put the library into ``directory`` as ``<stem>.<version>``, with the link ``<stem>.1``; return the former."""
    directory.mkdir(parents=True, exist_ok=True)
    installed = directory / f"{stem}.{version}"
    # A copy, no hard link: the loader takes two names of one inode for the same library.
    shutil.copyfile(library, installed)
    installed.chmod(0o755)
    link = directory / f"{stem}.1"
    link.unlink(missing_ok=True)
    link.symlink_to(installed.name)
    return installed
