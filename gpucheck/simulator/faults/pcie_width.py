"""A loose card or a bad riser: the link trained with fewer lanes than both its ends have."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

WIDTHS = (1, 2, 4, 8, 16)


def _apply(machine: Machine, gpu: int, width: int, when: str = "always") -> None:
    """when=load: the link looks right while the GPU idles, in sysfs too, and loses lanes under load."""
    narrow = machine.gpu(gpu)
    if width not in WIDTHS or width >= narrow.function.width:
        raise ValueError(f"width={width}: choose one of {[w for w in WIDTHS if w < narrow.function.width]}")
    narrow.answer({"pcie.width": width}, when)
    if when == "load":
        return
    narrow.function.width = machine.slot(narrow.function).width = width


FAULT = Fault("pcie-width", "a GPU's PCIe link runs with fewer lanes than it could", _apply)
