"""Fabric Manager does not run: no GPU gets registered with the NVSwitch fabric."""

from gpucheck.simulator.fabric import UNIT, bring_down
from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine) -> None:
    bring_down(machine)
    machine.services[UNIT] = "inactive"


FAULT = Fault(
    name="fabric-manager-stopped", summary="the fabric manager does not run, so that the fabric is not up", apply=_apply
)
