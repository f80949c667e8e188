"""The driver failed to initialise one GPU: it is on the PCI bus, and NVML does not count it."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, gpu: int) -> None:
    machine.gpu(gpu).visible = False


FAULT = Fault(
    name="gpu-missing",
    summary="a GPU is on the PCI bus but NVML does not count it",
    apply=_apply,
    parameters={"gpu": int},
)
