"""Change the faults of a machine while programs use it: a private directory, rewritten file by file."""

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from gpucheck.simulator.cache import cache_folder
from gpucheck.simulator.machine import Machine
from gpucheck.simulator.machine.profile import Profile
from gpucheck.simulator.writer import RECIPE, Recipe, write_machine


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
        machine = write_machine(recipe, fresh)
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
    driver, faults, stand_ins = profile.driver.state(), tuple(faults), tuple(stand_ins)
    recipe = Recipe(profile=profile, driver=driver, software=True, stand_ins=stand_ins, faults=faults)
    _build_libraries(directory / "lib", write_machine(recipe, directory))


def _build_libraries(directory: Path, machine: Machine) -> None:
    from gpucheck.simulator.compiler import build_cuda_library, build_library

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
