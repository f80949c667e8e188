"""Put a simulated machine under this process and its children; ready ones come from a cache."""

import ctypes
import hashlib
import os
import platform
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from gpucheck.simulator.cache import cache_folder, evict, publish, use
from gpucheck.simulator.data import is_file, profile_text

SOURCES = (".py", ".yml", ".c", ".h", ".txt", ".sh")
TRIES = 10
STAND_INS = (
    "NVML library",
    "CUDA driver library",
    "PCI, driver and DMI files of /sys and /proc",
    "GPU services and packages",
)


def activate(name: str, faults: Iterable[str] = ()) -> Path:
    """Make the machine of this profile with these faults (``NAME[:key=value,...]``), and return its directory.

    Sets GPUCHECK_SIMULATOR, which children inherit, and loads its libraries into this process, so that pynvml's
    ``CDLL("libnvidia-ml.so.1")`` finds one by its soname, and cuda.bindings the other. A cached directory is shared:
    never write into it.

    Raises LookupError for an unknown profile or fault, ValueError for a fault that does not fit the machine or a broken
    profile, OSError when there is no C compiler or no place to write; each with the whole message in args[0].
    """
    faults = tuple(faults)
    directory = cache_folder("machines") / f"{_key(name, faults)}"
    try:
        _use_or_make(directory, lambda partial: _make(name, faults, partial))
    except OSError as error:
        where = f"{error.filename or directory}: {error.strerror}" if error.strerror else str(error)
        raise OSError(f"the simulated machine could not be made: {where}") from error
    os.environ["GPUCHECK_SIMULATOR"] = str(directory)
    for library in ("libnvidia-ml.so.1", "libcuda.so.1"):
        ctypes.CDLL(str(directory / "lib" / library))
    return directory


def _use_or_make(directory: Path, make: Callable[[Path], None]) -> None:
    """Raises OSError where it cannot be made, or never is this user's alone."""
    for _ in range(TRIES):  # another process may remove it as soon as it is made
        if use(directory):
            return
        publish(directory, make)
        evict()
    raise OSError(f"{directory}: other users can change what is made there. Set XDG_CACHE_HOME to your own.")


def _make(name: str, faults: tuple[str, ...], directory: Path) -> None:
    from gpucheck.simulator.machine.loading import load
    from gpucheck.simulator.writer import make

    make(load(name), directory, faults, STAND_INS)


def _key(name: str, faults: tuple[str, ...]) -> str:
    """Whatever a machine directory is made from: the profile, the faults in order, every file of this room.

    Our files count by size and time of change: to read two hundred of them takes longer than all the rest.
    Raises ValueError for a profile's own file that cannot be read.
    """
    if is_file(name):
        name = f"{name}\0{profile_text(name)}"
    digest = hashlib.sha256("\0".join((name, *faults, platform.machine(), platform.release())).encode())
    for source in sorted(_sources(os.fspath(Path(__file__).parent))):
        digest.update(repr(source).encode())
    return digest.hexdigest()[:24]


def _sources(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _sources(entry.path)
            elif entry.name.endswith(SOURCES):
                seen = entry.stat()
                yield entry.path, seen.st_size, seen.st_mtime_ns
