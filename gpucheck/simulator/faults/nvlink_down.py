"""One NVLink is down; a cable between two GPUs is down at both ends."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, gpu: int, link: int) -> None:
    down = machine.active_link(gpu, link)
    down.active = False
    if down.peer is not None:
        other, port = down.peer
        machine.gpu(other).links[port].active = False


FAULT = Fault("nvlink-down", "one NVLink of a GPU is down", _apply)
