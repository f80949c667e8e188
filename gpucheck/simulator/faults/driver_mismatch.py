"""The driver was upgraded under a running kernel: the loaded module is older than library and module file."""

import msgspec

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, loaded: str = "580.95.05") -> None:
    machine.require_driver()
    if machine.driver.loaded_version == loaded:
        raise ValueError(f"loaded={loaded} is the version of the library too")
    machine.driver = msgspec.structs.replace(machine.driver, loaded_version=loaded)


FAULT = Fault("driver-mismatch", "the loaded kernel module is older than the NVML library (NVML 18)", _apply)
