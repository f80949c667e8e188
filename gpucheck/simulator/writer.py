"""Write the directory of a simulated machine.

machine.txt, cuda.txt, compute.json, root/ (see ``sysfs``), simulation.json, surroundings.json and, where requested,
software.json.
"""

import platform
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from gpucheck.compute.engines.simulated import ComputeGpu
from gpucheck.host.nvml.health import named_reasons
from gpucheck.model import DriverState, Simulation
from gpucheck.processes.atomic import SHARED, write_atomic
from gpucheck.simulator.answers import answers
from gpucheck.simulator.cuda.copies import copies
from gpucheck.simulator.faults import apply
from gpucheck.simulator.machine import Machine, SimulatedGpu, build
from gpucheck.simulator.machine.profile import Profile
from gpucheck.simulator.sysfs.driver import kernel_log, write_driver
from gpucheck.simulator.sysfs.pci import Tree, write_pci
from gpucheck.simulator.sysfs.platform import write_platform

NVLSM = "2025.10.11-1"
SW_POWER_CAP = ("sw-power-cap",)


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine is made from.

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


def make(profile: Profile, directory: Path, faults: Iterable[str], stand_ins: Iterable[str]) -> None:
    """A private machine with its own libraries. Raises as ``write_machine`` and the compiler do."""
    from gpucheck.simulator.compiler import build_cuda_library, build_library

    driver, faults, stand_ins = profile.driver.state(), tuple(faults), tuple(stand_ins)
    recipe = Recipe(profile=profile, driver=driver, software=True, stand_ins=stand_ins, faults=faults)
    machine = write_machine(recipe, directory)
    build_library(directory / "lib", profile.driver.version, machine.release)
    build_cuda_library(directory / "lib", profile.driver.version)


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
    # The release whose module folder holds the installed driver.
    kernel, tree = recipe.kernel or platform.release(), Tree(directory / "root")
    write_pci(machine, tree, whole=recipe.software)
    write_platform(machine, tree, kernel)
    write_driver(machine, tree, kernel, whole=recipe.software)
    tree.raw("dev/kmsg", kernel_log(machine, kernel, driver=recipe.software).encode())
    simulation = Simulation(profile=recipe.profile.name, faults=recipe.faults, stand_ins=recipe.stand_ins)
    files = {
        "machine.txt": answers(machine).encode(),
        "cuda.txt": copies(machine, directory / "root").encode(),
        "compute.json": msgspec.json.encode(gpus_that_compute(machine)),
        "simulation.json": msgspec.json.encode(simulation),
        "surroundings.json": msgspec.json.encode(machine.surroundings),
    }
    if recipe.software:
        files["software.json"] = msgspec.json.encode({"services": machine.services, "packages": machine.packages})
    # The library may be reading: it must see the old file or the new one.
    for name, content in files.items():
        write_atomic(directory / name, content, mode=SHARED, durable=False)
    return machine


def _install(machine: Machine, profile: Profile) -> None:
    machine.services["nvidia-persistenced"] = "active"
    for unit in profile.services:
        machine.services[unit] = "active"
        machine.packages[unit] = f"{profile.driver.version}-1"
    if "nvidia-fabricmanager" in profile.services and not any(f.kind == "nvswitch" for f in machine.functions.values()):
        machine.packages["nvlsm"] = NVLSM


def gpus_that_compute(machine: Machine) -> tuple[ComputeGpu, ...]:
    """What the GPUs can compute, and what is wrong with it: compute.json."""
    return tuple(_computing(gpu) for gpu in machine.gpus if gpu.visible and not gpu.function.lost)


def _computing(gpu: SimulatedGpu) -> ComputeGpu:
    mask = gpu.nvml.get("clocks_event_reasons.load")
    held_by = (named_reasons(int(mask, 0)) if mask is not None else None) or ()
    held = gpu.nvml.get("clock.1.load")
    if held_by == SW_POWER_CAP:  # the governor itself keeps to the limit
        held, held_by = None, ()
    limit = gpu.nvml.get("power.limit_mw")
    clock, memory = gpu.model.clocks_mhz
    return ComputeGpu(
        name=gpu.model.name,
        bus_id=gpu.function.bus_id,
        capability=gpu.model.compute_capability,
        clock_mhz=float(clock),
        power_limit_w=int(limit) / 1000 if limit is not None else float(gpu.model.power_limit_w),
        power_default_w=float(gpu.model.power_limit_w),
        slowdown_c=gpu.slowdown_c,
        memory_limit_c=float(gpu.model.thermal.memory) if gpu.model.thermal.memory else None,
        multiprocessors=gpu.model.multiprocessors,
        memory_bus_bits=gpu.model.memory_bus_bits,
        memory_clock_mhz=float(memory),
        held_mhz=float(held) if held is not None else None,
        held_by=held_by,
        **gpu.compute,  # type: ignore[arg-type]  # by the names of its fields
    )
