"""IOMMU: does it translate the addresses of GPU traffic?

Source: /sys/kernel/iommu_groups/<n>/type of the GPU's group. ``identity`` passes addresses through; ``DMA`` and
``DMA-FQ`` translate, which NVIDIA does not support for peer copies on bare metal: they slow down, hang, or arrive as
zeros although the call succeeds.
"""

from collections.abc import Iterator

from gpucheck.checks._case import Case, observed
from gpucheck.checks._nvml import no_gpu_on_the_bus, quick_check, set_by_the_host
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, PciDevice
from gpucheck.model.facts import Facts

NAME = "iommu"
CODE, WANTED = "pcie.iommu-translates", "identity, or no IOMMU"
COMMAND_LINE = "/proc/cmdline"
# Machine hardware names (uname -m) of POWER: Linux arch/powerpc/kernel/iommu.c; public machines AC922 and TH2K
# (tests/data/perf).
ALWAYS_TRANSLATE = ("ppc64le",)


def evaluate(facts: Facts) -> Iterator[Finding]:
    """One finding for the host: all GPUs share the boot option."""
    gpus = [device for device in facts.pci if device.is_nvidia_gpu]
    command_line = (facts.texts[COMMAND_LINE] or "not readable").strip()
    host = Subject(check=NAME, evidence=(*map(_group, gpus), f"{COMMAND_LINE}: {command_line}"))
    types = ", ".join(sorted({gpu.iommu_type for gpu in gpus if gpu.iommu_type is not None}))
    translating = [gpu for gpu in gpus if (gpu.iommu_type or "").startswith("DMA")]
    unread = [gpu for gpu in gpus if gpu.iommu_group is not None and gpu.iommu_type is None]
    if not gpus:
        yield no_gpu_on_the_bus(NAME)
    elif facts.system.virtual is not None:
        yield set_by_the_host(NAME, facts.system.virtual, evidence=host.evidence)
    elif len(gpus) < 2:
        yield host.skips("pcie.iommu-one-gpu", types or "no IOMMU group")
    elif translating and facts.system.arch in ALWAYS_TRANSLATE:
        yield host.skips("pcie.iommu-by-design", types, arch=facts.system.arch)
    elif translating:
        seen = f"IOMMU type {types} for {len(translating)} of {len(gpus)} GPUs"
        yield host.warns(CODE, seen, WANTED)
    elif unread:
        yield host.unknown("pcie.iommu-type-unknown", unread=len(unread), gpus=len(gpus))
    else:
        yield host.passes(f"IOMMU type {types}" if types else "no IOMMU group")


def _group(gpu: PciDevice) -> str:
    if gpu.iommu_group is None:
        return f"{gpu.bus_id}: no IOMMU group"
    return f"{gpu.bus_id}: IOMMU group {gpu.iommu_group}, type {gpu.iommu_type or 'not readable'}"


def rule(case: Case) -> Iterator[Finding]:
    """A translating IOMMU where P2P over PCIe is granted; copies that NVLink carries do not pass it."""
    m = case.machine
    if m.translating and m.granted_over_pcie and not m.host.virtual:
        seen = "the IOMMU translates, and P2P over PCIe is granted"
        yield observed(NAME).warns(CODE, seen, WANTED, confidence="likely")


CHECK = quick_check(NAME, "hardware pcie", evaluate, ("pci", "system", f"text:{COMMAND_LINE}"))
