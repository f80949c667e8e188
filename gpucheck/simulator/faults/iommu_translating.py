"""The IOMMU translates the addresses of devices, which peer-to-peer copies on bare metal do not survive."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, type: str) -> None:  # noqa: A002 - the parameter's name, as the kernel's file is called
    if type not in ("DMA", "DMA-FQ"):
        raise ValueError(f"type={type}: DMA, or DMA-FQ")
    if machine.profile.virtual:
        raise ValueError(f"profile {machine.profile.name} is a virtual machine, and its IOMMU is its host's")
    machine.iommu = type


FAULT = Fault(
    name="iommu-translating",
    summary="the IOMMU translates the addresses of the GPUs (no iommu=pt)",
    apply=_apply,
    parameters={"type": "DMA-FQ"},
)
