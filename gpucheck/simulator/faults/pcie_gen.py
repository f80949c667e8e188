"""A bad riser, retimer or firmware setting: the link trained at a lower generation than both its ends have."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, gpu: int, gen: int, when: str = "always") -> None:
    """when=load: the link looks right while the GPU idles, in sysfs too, and falls back under load."""
    slow = machine.gpu(gpu)
    if not 1 <= gen < slow.function.generation:
        raise ValueError(f"gen={gen}: choose one of {list(range(1, slow.function.generation))}")
    slow.answer({"pcie.generation": gen}, when)
    if when == "load":
        return
    slow.function.generation = machine.slot(slow.function).generation = gen


FAULT = Fault("pcie-gen", "a GPU's PCIe link runs at a lower generation than it could", _apply)
