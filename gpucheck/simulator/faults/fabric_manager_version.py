"""Fabric Manager is of another version than the driver: it does not start."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.faults.fabric_manager_stopped import UNIT, bring_down
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, version: str = "580.95.05") -> None:
    if version == machine.driver.loaded_version:
        raise ValueError(f"version={version} is the driver's own")
    bring_down(machine, "failed")
    machine.packages[UNIT] = f"{version}-1"


FAULT = Fault(
    "fabric-manager-version", "the fabric manager's version is not the driver's, so that it does not start", _apply
)
