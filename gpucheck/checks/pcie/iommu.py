"""IOMMU: does it translate the addresses of GPU traffic?

Source: /sys/kernel/iommu_groups/<n>/type of the GPU's group. ``identity`` passes addresses through; ``DMA`` and
``DMA-FQ`` translate, which NVIDIA does not support for peer copies on bare metal: they slow down, hang, or arrive as
zeros although the call succeeds.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import no_gpu_on_the_bus, set_by_the_host
from gpucheck.knowledge.causes import translates_by_design
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding, Host, PciDevice

NAME = "iommu"


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs' PCI functions, the kernel command line (None: not readable), and the system.

    virtual: the kind of virtual machine, if any. arch: as ``uname -m`` prints it.
    """

    gpus: tuple[PciDevice, ...]
    command_line: str | None
    virtual: str | None
    arch: str = ""


def probe(host: Host) -> Values:
    return Values(
        gpus=tuple(device for device in host.pci() if device.is_nvidia_gpu),
        command_line=host.read_text("/proc/cmdline"),
        virtual=host.system().virtual,
        arch=host.system().arch,
    )


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for the host: all GPUs share the boot option."""
    host = Subject(check=NAME, evidence=_evidence(values))
    if not values.gpus:
        yield no_gpu_on_the_bus(NAME)
        return
    types = ", ".join(sorted({gpu.iommu_type for gpu in values.gpus if gpu.iommu_type is not None}))
    translating = [gpu for gpu in values.gpus if (gpu.iommu_type or "").startswith("DMA")]
    unread = [gpu for gpu in values.gpus if gpu.iommu_group is not None and gpu.iommu_type is None]
    if values.virtual is not None:
        yield set_by_the_host(NAME, values.virtual, evidence=host.evidence)
    elif len(values.gpus) < 2:
        yield host.skips("pcie.iommu-one-gpu", types or "no IOMMU group")
    elif translating and translates_by_design(values.arch):
        yield host.skips("pcie.iommu-by-design", types, arch=values.arch)
    elif translating:
        seen = f"IOMMU type {types} for {len(translating)} of {len(values.gpus)} GPUs"
        yield host.warns("pcie.iommu-translates", seen, "identity, or no IOMMU")
    elif unread:
        yield host.unknown("pcie.iommu-type-unknown", unread=len(unread), gpus=len(values.gpus))
    else:
        yield host.passes(f"IOMMU type {types}" if types else "no IOMMU group")


def _evidence(values: Values) -> tuple[str, ...]:
    return (*map(_group, values.gpus), f"/proc/cmdline: {(values.command_line or 'not readable').strip()}")


def _group(gpu: PciDevice) -> str:
    if gpu.iommu_group is None:
        return f"{gpu.bus_id}: no IOMMU group"
    return f"{gpu.bus_id}: IOMMU group {gpu.iommu_group}, type {gpu.iommu_type or 'not readable'}"


CHECK = Check(NAME, frozenset({"hardware", "pcie", "quick"}), probe, evaluate)
