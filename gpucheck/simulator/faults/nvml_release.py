"""An NVML library of an older driver: it lacks the functions that came later. nvml/exports.txt lists them."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine
from gpucheck.simulator.nvml.library import all_exports


def _apply(machine: Machine, branch: int) -> None:
    """branch: as in 535.261.03. The version that the library and the kernel module report stays the machine's own."""
    own = int(machine.profile.driver.version.partition(".")[0])
    oldest = min(one.first for one in all_exports())
    if not oldest <= branch < own:
        raise ValueError(f"branch={branch}: {oldest} to {own - 1}; profile {machine.profile.name} has {own}")
    if machine.driver.installed_version is None:
        raise ValueError("this machine's NVML library comes with a package that is not installed yet")
    machine.release = str(branch)


# Of branches without a recorded library (495, 510, 515, 560 and later), what NVIDIA's Python bindings look up.
FAULT = Fault(
    "nvml-release",
    "the NVML library exports only what an older driver branch had (340 to 550: recorded from real libraries)",
    _apply,
)
