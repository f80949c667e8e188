"""A device node below /dev is not there, as in a container that was not given it."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

NODES = ("nvidia-uvm", "nvidia-uvm-tools", "nvidiactl", "nvidia-modeset")


def _apply(machine: Machine, node: str) -> None:
    nodes = (*NODES, *(f"nvidia{number}" for number in range(len(machine.gpus))))
    if machine.driver.loaded_version is None:
        raise ValueError("no driver is loaded on this machine")
    if node not in nodes:
        raise ValueError(f"node={node}: one of {', '.join(nodes)}")
    machine.missing_nodes.add(node)


FAULT = Fault(
    name="node-missing",
    summary="a device node of the driver is missing below /dev",
    apply=_apply,
    parameters={"node": "nvidia-uvm"},
)
