"""BAR1: is the window through which peers see a GPU's memory as large as the memory?

Source: nvmlDeviceGetBAR1MemoryInfo. 256 MiB on a card of Ampere or newer means that Resizable BAR or Above 4G Decoding
is off; a Turing card such as the T4 has no more (captures of cloud machines). It matters only if GPUs copy to each
other over PCIe.
"""

from collections.abc import Iterator

from gpucheck.checks._case import Case, observed
from gpucheck.checks._machine import SMALL_BAR1_MIB, needs_large_bar1
from gpucheck.checks._nvml import about, evidence, gaps_of, not_reported, of_each_gpu, quick_check, set_by_the_host
from gpucheck.knowledge import gpu_by_pci_id
from gpucheck.model import Finding, Gpu, NvmlReading, PciDevice
from gpucheck.model.facts import Facts
from gpucheck.topology import NvLinks

NAME = "bar1"
LINKS = ("nvmlDeviceGetNvLinkState", "nvmlDeviceGetNvLinkRemotePciInfo")


@of_each_gpu(NAME, nothing="pcie.no-bar1")
def evaluate(facts: Facts, gpu: Gpu) -> Finding | None:
    nvml = facts.nvml
    if gpu.bar1_bytes is None:
        return not_reported(NAME, nvml, gpu, "nvmlDeviceGetBAR1MemoryInfo", what="BAR1 size")
    subject = about(NAME, gpu, unit="MiB")
    seen = gpu.bar1_bytes >> 20
    if seen == 0:
        return subject.unknown("pcie.bar1-unknown")
    if seen > SMALL_BAR1_MIB:
        return subject.passes(seen)
    model = gpu_by_pci_id(gpu.device_id)
    needed = needs_large_bar1(model, gpu.compute_capability)
    if needed is None:
        missing = not_reported(NAME, nvml, gpu, "nvmlDeviceGetCudaComputeCapability", what="required BAR1 size")
        return missing or subject.skips("pcie.bar1-no-capability", seen)
    if not needed:
        return subject.skips("pcie.bar1-small-by-design", seen)
    if facts.system.virtual is not None:
        return set_by_the_host(NAME, facts.system.virtual, subject.name, (f"BAR1 {seen} MiB",))
    if model is not None and model.cls == "geforce" and isinstance(nvml, NvmlReading):
        peer = _has_pcie_peer(nvml, facts.pci, gpu)
        if peer is None:
            missing = not_reported(NAME, nvml, gpu, "nvmlDeviceGetP2PStatus", what="PCIe peers of this GPU")
            return missing or subject.skips("pcie.bar1-no-peer-access", seen)
        if not peer:
            return subject.skips("pcie.bar1-no-pcie-peer", seen)
        # A peer whose NVLinks could not be read, at either end, may be one over NVLink.
        gaps = [gap for one in nvml.gpus for gap in gaps_of(nvml, one, *LINKS)] if model.nvlink else []
        if gaps_of(nvml, gpu, *LINKS) and (
            missing := not_reported(NAME, nvml, gpu, *LINKS, what="NVLinks of this GPU")
        ):
            return missing
        if gaps or (model.nvlink and _has_unknown_far_end(nvml)):
            return subject.with_evidence(*map(evidence, gaps)).unknown("pcie.bar1-peers-unknown", seen)
    wanted = gpu.memory_bytes >> 20 if gpu.memory_bytes else "the size of the GPU memory"
    return subject.warns("pcie.bar1-small", seen, wanted)


def _has_unknown_far_end(nvml: NvmlReading) -> bool:
    ids = {gpu.pci_bus_id for gpu in nvml.gpus}
    links = (link for gpu in nvml.gpus for link in gpu.nvlinks if link.active)
    return any(link.remote_kind not in ("switch", "npu") and link.remote_bus_id not in ids for link in links)


def _has_pcie_peer(nvml: NvmlReading, pci: tuple[PciDevice, ...], gpu: Gpu) -> bool | None:
    place = nvml.gpus.index(gpu)
    nvlinks = NvLinks(nvml.gpus, pci)
    others = [n for n in range(len(nvml.gpus)) if n != place and not nvlinks.between(place, n).links]
    status = {n: nvml.p2p["read"][place][n] if "read" in nvml.p2p else None for n in others}
    if "OK" in status.values():
        return True
    return None if None in status.values() else False


def rule(case: Case) -> Iterator[Finding]:
    """A small window of cards without P2P: a driver with P2P would need a larger one."""
    m = case.machine
    unknown = bool(m.pairs) and all(m.access[pair] is None for pair in m.pairs)
    if unknown and m.is_geforce and m.has_small_bar(m.pairs[0]):
        yield observed(NAME).explains("access.bar-small", "BAR1 256 MiB")


LIMITS = (f"at most {SMALL_BAR1_MIB} MiB is small from Ampere, for a workstation card from Ada",)
CHECK = quick_check(NAME, "hardware pcie", evaluate, ("nvml", "pci", "system"), limits=LIMITS)
