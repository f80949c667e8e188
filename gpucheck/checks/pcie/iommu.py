"""IOMMU: does it translate the addresses of GPU traffic?

Source: /sys/kernel/iommu_groups/<n>/type of the GPU's group. ``identity`` passes addresses through; ``DMA`` and
``DMA-FQ`` translate, which NVIDIA does not support for peer copies on bare metal: they slow down, hang, or arrive as
zeros although the call succeeds.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import no_gpu_on_the_bus, set_by_the_host
from gpucheck.knowledge.causes import translates_by_design
from gpucheck.model import Check, Finding, Host, PciDevice
from gpucheck.model.finding.about import About

NAME = "iommu"
FIX = "boot with iommu=pt (and intel_iommu=on or amd_iommu=on), or turn the IOMMU off in the BIOS"


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
    about = About(check=NAME, evidence=_evidence(values))
    if not values.gpus:
        yield no_gpu_on_the_bus(NAME)
        return
    types = ", ".join(sorted({gpu.iommu_type for gpu in values.gpus if gpu.iommu_type is not None}))
    translating = [gpu for gpu in values.gpus if (gpu.iommu_type or "").startswith("DMA")]
    unread = [gpu for gpu in values.gpus if gpu.iommu_group is not None and gpu.iommu_type is None]
    if values.virtual is not None:
        yield set_by_the_host(NAME, values.virtual, evidence=about.evidence)
    elif len(values.gpus) < 2:
        yield about.skips("not applicable: a single GPU has no peer to copy to", types or "no IOMMU group")
    elif translating and (by_design := translates_by_design(values.arch)):
        yield about.skips(f"not applicable: {by_design}", types)
    elif translating:
        why = "Peer copies through a translating IOMMU are slow, hang, or lose data while the call reports success."
        seen = f"IOMMU type {types} for {len(translating)} of {len(values.gpus)} GPUs"
        yield about.warns(seen, "identity, or no IOMMU", why, FIX, "iommu-translation")
    elif unread:
        why = f"IOMMU type unknown: the group type of {len(unread)} of {len(values.gpus)} GPUs cannot be read"
        yield about.unknown(why, "sudo cat /sys/kernel/iommu_groups/*/type")
    else:
        yield about.passes(f"IOMMU type {types}" if types else "no IOMMU group")


def _evidence(values: Values) -> tuple[str, ...]:
    return (*map(_group, values.gpus), f"/proc/cmdline: {(values.command_line or 'not readable').strip()}")


def _group(gpu: PciDevice) -> str:
    if gpu.iommu_group is None:
        return f"{gpu.bus_id}: no IOMMU group"
    return f"{gpu.bus_id}: IOMMU group {gpu.iommu_group}, type {gpu.iommu_type or 'not readable'}"


CHECK = Check(NAME, frozenset({"hardware", "pcie", "quick"}), probe, evaluate)
