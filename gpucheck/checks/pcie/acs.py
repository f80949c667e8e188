"""ACS: do PCIe switches pass traffic between GPUs, and between GPUs and RDMA network cards, straight across?

Source: the ACS control register of every bridge on the path of a pair, up to the switch that both share. The cost of
redirection is GPU peer copies between two GPUs, and GPUDirect RDMA between a GPU and a network card. Where a ConnectX-8
has a DMA function next to a GPU (Data Direct), some bits of its bridges must be set instead. Cards with ATS
and GPUs of virtual machines need redirection.
"""

from collections.abc import Iterable, Iterator, Sequence

from gpucheck.checks._case import Case, observed
from gpucheck.checks._nvml import no_gpu_on_the_bus, on_the_bus, quick_check, set_by_the_host, some_passed_through
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, PciDevice
from gpucheck.model.facts import Facts
from gpucheck.model.finding import Confidence
from gpucheck.printable import counted
from gpucheck.topology.pcie import COMPARED, Bridges, bridges_between, for_guests, of_data_direct, redirects

NAME = "acs"
# By what the bridges redirect: traffic between GPUs, to RDMA network cards.
CODES = {
    (True, False): "topology.acs-redirects-gpus",
    (False, True): "topology.acs-redirects-rdma",
    (True, True): "topology.acs-redirects-both",
}


def evaluate(facts: Facts) -> Iterator[Finding]:
    """One finding for all redirecting bridges, or one for the host."""
    host = Subject(check=NAME)
    between = bridges_between(facts.pci)
    guests = [device for device in on_the_bus(facts) if device.is_passed_through]
    found = _redirect(between)
    unread = [bridge.bus_id for bridge in between.every if not bridge.config_readable]
    if not any(device.is_nvidia_gpu for device in facts.pci):
        yield no_gpu_on_the_bus(NAME)
    elif facts.system.virtual is not None:
        yield set_by_the_host(NAME, facts.system.virtual)
    elif exact := of_data_direct(facts.pci):
        yield _exact(host, [bridge for bridge in facts.pci if bridge.bus_id in exact], exact)
    elif not between.every:
        yield host.skips("pcie.acs-no-shared-switch")
    elif found is not None and any({*guest.path} & {*bridge.path} for guest in guests for bridge in between.every):
        yield some_passed_through(host, guests)
    elif found is not None and for_guests(facts.pci):
        yield host.skips("pcie.acs-for-guests")
    elif found is not None:
        yield found
    elif unread:
        yield host.unknown("pcie.acs-needs-root", wanted="off", unread=len(unread), bridges=len(between.every))
    else:
        count = len(between.every)
        read = host.with_evidence(*_registers(between.every))
        yield read.passes(f"ACS redirect off at {count} PCIe bridge{'s' * (count > 1)}")


def _exact(host: Subject, bridges: Sequence[PciDevice], wanted: dict[str, int]) -> Finding:
    """What the other bridges of such a host are set to is not evaluated: GPUs and cards do not meet below them."""
    read = host.with_evidence(*_registers(bridges))
    wrong = [one for one in bridges if one.acs is not None and one.acs.control & COMPARED != wanted[one.bus_id]]
    unread = [one.bus_id for one in bridges if one.acs is None]
    if wrong:
        bits = [f"{one.bus_id} 0x{wanted[one.bus_id]:02x}" for one in wrong]
        seen = f"other ACS bits at {counted(len(wrong), 'PCIe bridge')}"
        return read.warns("pcie.acs-of-data-direct", seen, ", ".join(bits))
    if unread:
        return read.unknown("pcie.acs-needs-root", wanted="set", unread=len(unread), bridges=len(bridges))
    return read.passes(f"ACS as Data Direct needs it at {counted(len(bridges), 'PCIe bridge')}")


def rule(case: Case) -> Iterator[Finding]:
    """Bridges that redirect where nothing was copied yet; a measured pair shows whether that costs anything."""
    m = case.machine
    near = [pair for pair in m.granted_over_pcie if m.is_near(pair)]
    near = near or [pair for pair in m.pairs if m.over_pcie(pair) and (m.is_near(pair) or m.classes[pair] is None)]
    if m.acs and near and not any(map(m.one_way, near)):
        yield _redirecting(m.acs_bridges, confidence="likely")


def _registers(bridges: Iterable[PciDevice]) -> tuple[str, ...]:
    return tuple(f"{b.bus_id}: ACS control 0x{b.acs.control:04x}" for b in bridges if b.acs is not None)


def _redirect(bridges: Bridges) -> Finding | None:
    found = [bridge for bridge in bridges.every if redirects(bridge)]
    if not found:
        return None
    code = CODES[any(map(redirects, bridges.gpus)), any(map(redirects, bridges.rdma))]
    return _redirecting([one.bus_id for one in found], code=code, evidence=_registers(bridges.every))


def _redirecting(
    bridges: Sequence[str],
    *,
    code: str = CODES[True, False],
    evidence: tuple[str, ...] = (),
    confidence: Confidence | None = None,
) -> Finding:
    """Return the finding for bridges that redirect, by bus id; none is named if only that it is on is known."""
    where = f" at {counted(len(bridges), 'PCIe bridge')}" if bridges else ""
    ids = ";".join(bridges) or "BUS_IDS"
    subject = Subject(check=NAME, evidence=evidence)
    return subject.warns(code, f"ACS redirect on{where}", "off", confidence=confidence, bridges=ids)


IOMMU = "iommu"
TRANSLATES, IDENTITY = "pcie.iommu-translates", "identity, or no IOMMU"
COMMAND_LINE = "/proc/cmdline"
# Machine hardware names (uname -m) of POWER: Linux arch/powerpc/kernel/iommu.c; public machines AC922 and TH2K
# (tests/data/perf).
ALWAYS_TRANSLATE = ("ppc64le",)


def iommu(facts: Facts) -> Iterator[Finding]:
    """IOMMU: does it translate the addresses of GPU traffic?

    Source: /sys/kernel/iommu_groups/<n>/type of the GPU's group. ``identity`` passes addresses through; ``DMA`` and
    ``DMA-FQ`` translate, which NVIDIA does not support for peer copies on bare metal: they slow down, hang, or arrive
    as zeros although the call succeeds.
    """
    every = on_the_bus(facts)
    gpus = [device for device in every if not device.is_passed_through]
    command_line = (facts.texts[COMMAND_LINE] or "not readable").strip()
    host = Subject(check=IOMMU, evidence=(*map(_group, gpus), f"{COMMAND_LINE}: {command_line}"))
    types = ", ".join(sorted({gpu.iommu_type for gpu in gpus if gpu.iommu_type is not None}))
    translating = [gpu for gpu in gpus if (gpu.iommu_type or "").startswith("DMA")]
    unread = [gpu for gpu in gpus if gpu.iommu_group is not None and gpu.iommu_type is None]
    if not every:
        yield no_gpu_on_the_bus(IOMMU)
    elif facts.system.virtual is not None:
        yield set_by_the_host(IOMMU, facts.system.virtual, evidence=host.evidence)
    elif not gpus:
        yield some_passed_through(host, every)
    elif len(gpus) < 2:
        yield host.skips("pcie.iommu-one-gpu", types or "no IOMMU group")
    elif translating and facts.system.arch in ALWAYS_TRANSLATE:
        yield host.skips("pcie.iommu-by-design", types, arch=facts.system.arch)
    elif translating:
        seen = f"IOMMU type {types} for {len(translating)} of {len(gpus)} GPUs"
        yield host.warns(TRANSLATES, seen, IDENTITY)
    elif unread:
        yield host.unknown("pcie.iommu-type-unknown", unread=len(unread), gpus=len(gpus))
    else:
        yield host.passes(f"IOMMU type {types}" if types else "no IOMMU group")


def _group(gpu: PciDevice) -> str:
    if gpu.iommu_group is None:
        return f"{gpu.bus_id}: no IOMMU group"
    return f"{gpu.bus_id}: IOMMU group {gpu.iommu_group}, type {gpu.iommu_type or 'not readable'}"


def iommu_rule(case: Case) -> Iterator[Finding]:
    """A translating IOMMU where P2P over PCIe is granted; copies that NVLink carries do not pass it."""
    m = case.machine
    if m.translating and m.granted_over_pcie and not m.host.virtual:
        seen = "the IOMMU translates, and P2P over PCIe is granted"
        yield observed(IOMMU).warns(TRANSLATES, seen, IDENTITY, confidence="likely")


CHECK = quick_check(NAME, "hardware pcie", evaluate, ("pci", "system"))
CHECKS = (CHECK, quick_check(IOMMU, "hardware pcie", iommu, ("pci", "system", f"text:{COMMAND_LINE}")))
