"""The IOMMU translates the addresses of devices, which peer-to-peer copies on bare metal do not survive."""

from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, type: str = "DMA-FQ") -> None:  # noqa: A002 - the parameter's name, as the kernel's file is called
    check_choice("type", type, ("DMA", "DMA-FQ"))
    if machine.profile.virtual:
        raise ValueError(f"profile {machine.profile.name} is a virtual machine, and its IOMMU is its host's")
    machine.iommu = type


FAULT = Fault("iommu-translating", "the IOMMU translates the addresses of the GPUs (no iommu=pt)", _apply)
