"""IOMMU: does it translate the addresses of GPU traffic?

Source: /sys/kernel/iommu_groups/<n>/type of the GPU's group. ``identity`` passes addresses through; ``DMA`` and
``DMA-FQ`` translate, which NVIDIA does not support for peer copies on bare metal: they slow down, hang, or arrive as
zeros although the call succeeds.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import no_gpu_on_the_bus
from gpucheck.model import Check, Finding, Host, PciDevice
from gpucheck.model.about import About

NAME = "iommu"
FIX = "boot with iommu=pt (and intel_iommu=on or amd_iommu=on), or switch the IOMMU off in the BIOS"


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs' PCI functions, what the kernel was booted with, and the kind of virtual machine where there is one."""

    gpus: tuple[PciDevice, ...]
    command_line: str
    virtual: str | None


def probe(host: Host) -> Values:
    """Ask sysfs and procfs."""
    return Values(
        gpus=tuple(device for device in host.pci() if device.is_nvidia_gpu),
        command_line=(host.read_text("/proc/cmdline") or "").strip(),
        virtual=host.system().virtual,
    )


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for the host: all GPUs share the boot option."""
    about = About(check=NAME, evidence=_evidence(values))
    if not values.gpus:
        yield no_gpu_on_the_bus(NAME)
        return
    types = sorted({gpu.iommu_type for gpu in values.gpus if gpu.iommu_type is not None})
    translating = [gpu for gpu in values.gpus if (gpu.iommu_type or "").startswith("DMA")]
    if values.virtual is not None:
        yield about.skips(f"inside a {values.virtual} machine the host's IOMMU is not ours to see", ", ".join(types))
    elif len(values.gpus) < 2:
        yield about.skips("a single GPU has no peer to copy to", ", ".join(types) or "no IOMMU group")
    elif translating:
        why = "peer copies through a translating IOMMU are slow, hang, or lose data while the call reports success"
        seen = f"{', '.join(types)} for {len(translating)} of {len(values.gpus)} GPUs"
        yield about.warns(seen, "identity, or no IOMMU", why, FIX, "iommu-translation", "likely")
    elif any(gpu.iommu_group is not None and gpu.iommu_type is None for gpu in values.gpus):
        why = "the GPUs are in IOMMU groups whose type could not be read"
        yield about.unknown(why, "sudo cat /sys/kernel/iommu_groups/*/type")
    else:
        yield about.passes(", ".join(types) or "no IOMMU group", "identity, or no IOMMU")


def _evidence(values: Values) -> tuple[str, ...]:
    groups = (f"{gpu.bus_id}: IOMMU group {gpu.iommu_group}, type {gpu.iommu_type}" for gpu in values.gpus)
    return (*groups, f"/proc/cmdline: {values.command_line}")


CHECK = Check(NAME, frozenset({"hardware", "pcie", "quick"}), probe, evaluate)
