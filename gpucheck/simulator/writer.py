"""Write the directory of a simulated machine.

machine.txt, cuda.txt, compute.json, root/ (see ``sysfs``), simulation.json, recipe.json, surroundings.json and, where
requested, software.json.
"""

import platform
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from gpucheck.compute.engines.simulated import SimulatedGpu
from gpucheck.host.nvml.health import named_reasons
from gpucheck.model import DriverState, Simulation
from gpucheck.simulator.answers import answers
from gpucheck.simulator.cuda.copies import copies
from gpucheck.simulator.faults import apply
from gpucheck.simulator.machine import Machine, build
from gpucheck.simulator.machine import SimulatedGpu as Gpu
from gpucheck.simulator.machine.profile import Profile
from gpucheck.simulator.sysfs import write_root

SW_POWER_CAP = ("sw-power-cap",)
SLOWDOWN_C = 83.0  # of models without a published limit


def gpus_that_compute(machine: Machine) -> tuple[SimulatedGpu, ...]:
    """Every GPU that NVML counts and that answers, in NVML's order."""
    return tuple(_gpu(gpu) for gpu in machine.gpus if gpu.visible and not gpu.function.lost)


def slowdown_c(gpu: Gpu) -> float:
    """The temperature from which the driver lowers the clock."""
    limits = gpu.model.thermal
    return float(limits.operating or limits.slowdown or SLOWDOWN_C)


def _gpu(gpu: Gpu) -> SimulatedGpu:
    mask = gpu.nvml.get("clocks_event_reasons.load")
    held_by = (named_reasons(int(mask, 0)) if mask is not None else None) or ()
    held = gpu.nvml.get("clock.1.load")
    if held_by == SW_POWER_CAP:  # the governor itself keeps to the limit
        held, held_by = None, ()
    limit = gpu.nvml.get("power.limit_mw")
    clock, memory = gpu.model.clocks_mhz
    return SimulatedGpu(
        name=gpu.model.name,
        bus_id=gpu.function.bus_id,
        capability=gpu.model.compute_capability,
        clock_mhz=float(clock),
        power_limit_w=int(limit) / 1000 if limit is not None else float(gpu.model.power_limit_w),
        power_default_w=float(gpu.model.power_limit_w),
        slowdown_c=slowdown_c(gpu),
        memory_limit_c=float(gpu.model.thermal.memory) if gpu.model.thermal.memory else None,
        multiprocessors=gpu.model.multiprocessors,
        memory_bus_bits=gpu.model.memory_bus_bits,
        memory_clock_mhz=float(memory),
        held_mhz=float(held) if held is not None else None,
        held_by=held_by,
        **gpu.compute,  # type: ignore[arg-type]  # by the names of its fields
    )


RECIPE = "recipe.json"
NVLSM = "2025.10.11-1"


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine was made from, to make it again with other faults."""

    profile: Profile
    driver: DriverState | None
    kernel: str | None
    software: bool
    stand_ins: tuple[str, ...]
    faults: tuple[str, ...]


def write_machine(
    profile: Profile,
    directory: Path,
    *,
    driver: DriverState | None,
    faults: Iterable[str] = (),
    stand_ins: Iterable[str] = (),
    kernel: str | None = None,
    software: bool = False,
) -> Machine:
    """Make ``directory`` the machine of this profile, and return it. What an earlier machine left there is replaced.

    driver: what the kernel shows. None is a bare machine, with no module loaded and none installed.
    kernel: release of the running kernel, by default this one's.
    software: the machine also answers for the services and packages that go with its GPUs (software.json); without it
    those are read from the operating system, as on the lab's hosts, where real packages install them.
    Raises LookupError for an unknown fault, ValueError for one that does not fit, FileExistsError when the directory
    holds something else.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()) and not (directory / "simulation.json").exists():
        raise FileExistsError(f"{directory}: not empty, and not a simulated machine. Give an empty directory.")
    recipe = Recipe(
        profile=profile,
        driver=driver,
        kernel=kernel,
        software=software,
        stand_ins=tuple(stand_ins),
        faults=tuple(faults),
    )
    return write_recipe(recipe, directory)


def write_recipe(recipe: Recipe, directory: Path) -> Machine:
    """As ``write_machine``, into a directory that is empty or a simulated machine."""
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
    """What a provisioned machine of this profile runs in addition to its driver."""
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
