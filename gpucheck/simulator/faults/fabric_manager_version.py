"""Fabric Manager is of another version than the driver: it does not start."""

from gpucheck.simulator.fabric import UNIT, bring_down
from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, version: str) -> None:
    if version == machine.driver.loaded_version:
        raise ValueError(f"version={version} is the driver's own")
    bring_down(machine)
    machine.services[UNIT] = "failed"
    machine.packages[UNIT] = f"{version}-1"


FAULT = Fault(
    name="fabric-manager-version",
    summary="the fabric manager's version is not the driver's, so that it does not start",
    apply=_apply,
    parameters={"version": "580.95.05"},
)
