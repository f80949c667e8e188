"""Change the faults of a machine while programs use it: a private directory, rewritten file by file."""

import ctypes
import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from gpucheck.simulator.cache import cache_folder, evict, publish, use
from gpucheck.simulator.machine import Machine
from gpucheck.simulator.machine.loading import is_file, profile_text
from gpucheck.simulator.machine.profile import Profile
from gpucheck.simulator.writer import RECIPE, Recipe, write_machine, write_recipe


def switch(directory: Path, faults: Iterable[str]) -> None:
    """Give the machine in ``directory`` these faults instead of those that it has; none makes it healthy.

    Only files that differ are touched, each replaced in one step: a reader sees the old content or the new. The NVML
    library notices at its next call; what it exports changes for programs that start afterwards. Counters that rise
    start again from zero, as after a reload of the driver.
    Raises LookupError for an unknown fault, ValueError for one that does not fit or for a directory that is no private
    machine, OSError when it cannot be written; the machine is then as it was, or in the last case partly switched.
    """
    recipe = msgspec.structs.replace(_recipe(directory), faults=tuple(faults))
    fresh = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        machine = write_recipe(recipe, fresh)
        if (directory / "lib").is_dir():
            _build_libraries(fresh / "lib", machine)
        elif machine.release is not None:
            raise ValueError(
                f"{directory}: its NVML library was installed by a package, so no fault can change what it exports"
            )
        _take_over(fresh, directory)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def make(profile: Profile, directory: Path, faults: Iterable[str], stand_ins: Iterable[str]) -> None:
    """A private machine with its own libraries, for ``switch``. Raises as ``write_machine`` and the compiler do."""
    driver = profile.driver.state()
    machine = write_machine(profile, directory, driver=driver, faults=faults, stand_ins=stand_ins, software=True)
    _build_libraries(directory / "lib", machine)


def _build_libraries(directory: Path, machine: Machine) -> None:
    from gpucheck.simulator.cuda.library import build_cuda_library
    from gpucheck.simulator.nvml.library import build_library

    version = machine.profile.driver.version
    build_library(directory, version, machine.release)
    build_cuda_library(directory, version)


def _recipe(directory: Path) -> Recipe:
    if directory.resolve().parent == cache_folder("machines").resolve():
        raise ValueError(
            f"{directory}: in the cache, where other runs use it. Create another one: gpucheck simulate PROFILE -o DIR"
        )
    try:
        return msgspec.json.decode((directory / RECIPE).read_bytes(), type=Recipe)
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(
            f"{directory}: not a simulated machine. Create one: gpucheck simulate PROFILE -o DIR"
        ) from error


def _take_over(fresh: Path, directory: Path) -> None:
    """Everything of ``fresh`` into ``directory``: what is new first, what is gone last, simulation.json at the end."""
    new, old = _entries(fresh), _entries(directory)
    for name in sorted(new, key=lambda name: (name == "simulation.json", name)):
        if old.get(name) == new[name] and _same(fresh / name, directory / name):
            continue
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (fresh / name).replace(target)
    for name in sorted(old.keys() - new.keys(), reverse=True):
        if Path(name).parts[0] != "lib":
            (directory / name).unlink()
            _prune((directory / name).parent, directory)


def _entries(folder: Path) -> dict[str, str]:
    """Every file and link below a folder -> where it leads, empty for a file."""
    found = {}
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(above, name)  # noqa: PTH118 - thousands of files: strings are faster
            if os.path.islink(path):  # noqa: PTH114
                found[os.path.relpath(path, folder)] = os.readlink(path)  # noqa: PTH115
            elif name in files:
                found[os.path.relpath(path, folder)] = ""
    return found


def _same(one: Path, other: Path) -> bool:
    return one.is_symlink() or one.read_bytes() == other.read_bytes()


def _prune(folder: Path, top: Path) -> None:
    while folder != top and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


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
    from gpucheck.simulator.live import make
    from gpucheck.simulator.machine.loading import load

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
