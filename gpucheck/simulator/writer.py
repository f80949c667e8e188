"""Write the directory of a simulated machine.

machine.txt, cuda.txt, compute.json, root/ (see ``sysfs``), simulation.json, recipe.json, surroundings.json and, where
requested, software.json.
"""

import platform
import shutil
from pathlib import Path

import msgspec

from gpucheck.model import DriverState, Simulation
from gpucheck.simulator.answers import answers
from gpucheck.simulator.compute import gpus_that_compute
from gpucheck.simulator.cuda.copies import copies
from gpucheck.simulator.faults import apply
from gpucheck.simulator.machine import Machine, build
from gpucheck.simulator.machine.profile import Profile
from gpucheck.simulator.sysfs import write_root

RECIPE = "recipe.json"
NVLSM = "2025.10.11-1"


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine is made from, kept in it to make it again with other faults.

    driver: what the kernel shows. None is a bare machine, with no module loaded and none installed.
    kernel: release of the running kernel, by default this one's.
    software: the machine also answers for the services and packages that go with its GPUs (software.json); without it
    those are read from the operating system, as on the lab's hosts, where real packages install them.
    """

    profile: Profile
    driver: DriverState | None
    kernel: str | None = None
    software: bool = False
    stand_ins: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


def write_machine(recipe: Recipe, directory: Path) -> Machine:
    """Make ``directory`` the machine of this recipe, and return it. What an earlier machine left there is replaced.

    Raises LookupError for an unknown fault, ValueError for one that does not fit, FileExistsError when the directory
    holds something else.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()) and not (directory / "simulation.json").exists():
        raise FileExistsError(f"{directory}: not empty, and not a simulated machine. Give an empty directory.")
    machine = build(recipe.profile, recipe.driver or DriverState())
    if recipe.software and machine.driver.loaded_version is not None:
        _install(machine, recipe.profile)
    machine.faults = recipe.faults
    apply(machine)
    errors = {f"nvidia{minor}": gpu.open_error for minor, gpu in enumerate(machine.by_minor()) if gpu.open_error}
    if errors:
        machine.surroundings["open_errors"] = errors
    shutil.rmtree(directory / "root", ignore_errors=True)
    write_root(machine, directory / "root", recipe.kernel or platform.release(), whole=recipe.software)
    simulation = Simulation(profile=recipe.profile.name, faults=recipe.faults, stand_ins=recipe.stand_ins)
    _replace(directory / "machine.txt", answers(machine).encode())
    _replace(directory / "cuda.txt", copies(machine, directory / "root").encode())
    _replace(directory / "compute.json", msgspec.json.encode(gpus_that_compute(machine)))
    _replace(directory / RECIPE, msgspec.json.encode(recipe))
    _replace(directory / "simulation.json", msgspec.json.encode(simulation))
    _replace(directory / "surroundings.json", msgspec.json.encode(machine.surroundings))
    if recipe.software:
        answer = {"services": machine.services, "packages": machine.packages}
        _replace(directory / "software.json", msgspec.json.encode(answer))
    return machine


def _install(machine: Machine, profile: Profile) -> None:
    machine.services["nvidia-persistenced"] = "active"
    for unit in profile.services:
        machine.services[unit] = "active"
        machine.packages[unit] = f"{profile.driver.version}-1"
    if "nvidia-fabricmanager" in profile.services and not any(f.kind == "nvswitch" for f in machine.functions.values()):
        machine.packages["nvlsm"] = NVLSM


def _replace(path: Path, content: bytes) -> None:
    """The library may be reading: it must see the old file or the new one."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)
