"""The IOMMU blocked a GPU's access to a peer: the copy was lost, and only the kernel log reports it."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

AMD = "nvidia {function}: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0014 address={address:#x} flags=0x0030]"
INTEL = (
    "DMAR: [DMA Write NO_PASID] Request device [{device}] fault addr {address:#x} "
    "[fault reason 0x05] PTE Write access is not set"
)


def _apply(machine: Machine, gpu: int, count: int = 2) -> None:
    if machine.iommu == "off":
        raise ValueError(
            f"profile {machine.profile.name} has no IOMMU; add the fault iommu-translating before this one"
        )
    function = machine.gpu(gpu).function
    amd = machine.cpu is not None and machine.cpu.vendor == "AuthenticAMD"
    device = function.bus_id.removeprefix("0000:")
    for number in range(count):
        address = 0x3A000000000 + number * 0x1000
        line = (AMD if amd else INTEL).format(function=function.bus_id, device=device, address=address)
        machine.log(line, age_s=60 + number)


FAULT = Fault("iommu-faults", "the kernel log shows accesses of a GPU that the IOMMU blocked", _apply)
