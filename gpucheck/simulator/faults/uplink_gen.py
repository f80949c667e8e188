"""A link above a switch trained below what both its ends can: every GPU behind the switch shares the loss."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Function, Machine

WIDTHS = (1, 2, 4, 8, 16)


def _apply(machine: Machine, gen: int, gpu: int | None = None, bus_id: str = "", width: int | None = None) -> None:
    upper, lower = _link(machine, gpu, bus_id)
    if width is not None and (width not in WIDTHS or width > lower.width):
        raise ValueError(f"width={width}: choose one of {[w for w in WIDTHS if w <= lower.width]}")
    if not 1 <= gen <= lower.generation:
        raise ValueError(f"gen={gen}: the link at {lower.bus_id} runs at generation {lower.generation}")
    if gen == lower.generation and width in (None, lower.width):
        raise ValueError(f"gen={gen}: the link at {lower.bus_id} would be as it is")
    for end in (upper, lower):
        end.generation, end.width = gen, width or end.width


def _link(machine: Machine, gpu: int | None, bus_id: str) -> tuple[Function, Function]:
    """Both ends of the link, the port towards the CPU first."""
    if (gpu is None) == (not bus_id):
        raise ValueError("name the link: gpu=N for the topmost one above a GPU, or bus_id= of a port at either end")
    if gpu is not None:
        chain = machine.chain(machine.gpu(gpu).function.bus_id)
        if len(chain) < 2:
            raise ValueError(f"GPU {gpu} is in a slot of the CPU itself; its own link is the fault pcie-gen")
        return chain[0], chain[1]
    if bus_id not in machine.functions:
        raise ValueError(f"bus_id={bus_id}: no such device; there are {', '.join(sorted(machine.functions))}")
    port = machine.functions[bus_id]
    if port.kind == "switch-upstream" and port.parent is not None:
        return machine.functions[port.parent], port
    below = [one for one in machine.functions.values() if one.parent == bus_id and one.kind == "switch-upstream"]
    if not below:
        raise ValueError(f"bus_id={bus_id}: is no port between a switch and what is above it")
    return port, below[0]


FAULT = Fault("uplink-gen", "the link above a PCIe switch runs below what both its ends can", _apply)
