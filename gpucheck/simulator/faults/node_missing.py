"""A device node below /dev is not there, as in a container that was not given it."""

from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import Machine

CHANNEL = "nvidia-caps-imex-channels/channel0"  # of machines with IMEX
NODES = ("nvidia-uvm", "nvidia-uvm-tools", "nvidiactl", "nvidia-modeset")


def _apply(machine: Machine, node: str = "nvidia-uvm") -> None:
    nodes = (*NODES, *(f"nvidia{number}" for number in range(len(machine.gpus))))
    nodes += (CHANNEL,) if "nvidia-imex" in machine.services else ()
    machine.require_driver()
    check_choice("node", node, nodes)
    machine.missing_nodes.add(node)


FAULT = Fault("node-missing", "a device node of the driver is missing below /dev", _apply)
