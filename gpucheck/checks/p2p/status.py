"""P2P status: does the driver let every pair of GPUs reach each other, and where not, is that by design?

Source: nvmlDeviceGetP2PStatus for read and write over whatever path there is, and for NVLink. OK does not prove that
data arrives right; that is measured. GeForce cards of Ada and newer have no peer-to-peer by NVIDIA's decision, unequal
models may have none, a virtual machine hides it, MIG has none.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from gpucheck.checks._case import Case, listed, observed, span
from gpucheck.checks._healthy import Level, staged
from gpucheck.checks._machine import MESHED, Machine, Pair, is_geforce_without_p2p, nvlink_of
from gpucheck.checks._nvml import LOST, evidence, gaps_of, quick_check, with_gpus
from gpucheck.checks.nvlink.fabric import NOT_SET_UP, is_tray_gpu
from gpucheck.knowledge import find_gpu, gpu_by_pci_id
from gpucheck.knowledge.codes import Subject
from gpucheck.model import DEFECT, Finding, Gpu, NvmlGap, NvmlReading, Verdict
from gpucheck.model.facts import Facts
from gpucheck.topology import NvLinks
from gpucheck.topology.build import pair_findings
from gpucheck.topology.wiring import View, p2p_status

NAME = "p2p-status"
CALL = "nvmlDeviceGetP2PStatus"
CODES = {
    "CNS": "p2p.chipset-unsupported",
    "GNS": "p2p.gpu-unsupported",
    "TNS": "p2p.path-unsupported",
    "DR": "p2p.disabled-by-driver",
    "NS": "p2p.not-supported",
}
SHOWN = 12
# Reasons that are nothing to report where the copies are as fast as those with peer access.
MAY_COST_NOTHING = (
    *CODES.values(),
    "access.models-differ",
    "access.status-unexplained",
    "access.chipset-unexplained",
    "access.reason-unknown",
)
AS_FAST = 0.95  # of the pairs with peer access: then the missing access costs nothing
Place = tuple[int, int]


class Refusal(NamedTuple):
    """Why there is no access. others: causes that fit as well, in order."""

    verdict: Verdict
    code: str
    others: tuple[str, ...] = ()


@with_gpus(NAME)
def evaluate(facts: Facts, nvml: NvmlReading) -> Iterator[Finding]:
    """One finding for each kind of answer, with the pairs that got it."""
    if len(nvml.gpus) == 1:
        yield Subject(check=NAME).skips("p2p.single-gpu", "1 GPU")
        return
    nvlinks = NvLinks(nvml.gpus, facts.pci)
    groups: dict[tuple[str | None, str | None], list[Place]] = defaultdict(list)
    divided: list[Place] = []
    for pair in combinations(range(len(nvml.gpus)), 2):
        status = p2p_status(nvml, pair)
        linked = bool(nvlinks.between(*pair).links)
        if status not in ("OK", None) and _mig_refused(nvml, pair):
            divided.append(pair)
            continue
        groups[status, _why_not(nvml, pair, facts.system.virtual, linked=linked, by_key=status == "DR")].append(pair)
    unread = [pair for (status, _), pairs in groups.items() if status is None for pair in pairs]
    for (status, by_design), pairs in groups.items():
        if status is not None:
            yield _evaluate(nvml, status, by_design, pairs)
    if divided:
        yield _subject(nvml, divided, "not OK").unknown("p2p.mig-mode-unknown", because_of="mig")
    yield from _unread(nvml, unread)
    yield from _links_without_p2p(nvml, nvlinks)


def _why_not(nvml: NvmlReading, pair: Place, virtual: str | None, *, linked: bool, by_key: bool) -> str | None:
    """Return why there is none by design; by_key: a registry key of the driver disables it, which is no design."""
    a, b = (nvml.gpus[place] for place in pair)
    if _divided(a) or _divided(b):
        return "p2p.none-with-mig"
    if by_key:
        return None
    if virtual is not None:
        return "p2p.none-in-vm"
    if a.device_id != b.device_id:
        return "p2p.none-between-models"
    model = gpu_by_pci_id(a.device_id) or find_gpu(a.name)
    return "p2p.none-on-geforce" if model is not None and model.cls == "geforce" and not linked else None


def _divided(gpu: Gpu) -> bool:
    """Whether MIG is on; a GPU with instances has it, also where NVML offers no mode."""
    return bool(gpu.health.mig or gpu.mig_uuids)


def _mig_refused(nvml: NvmlReading, pair: Place) -> bool:
    """Whether a GPU may be divided, which would explain that it has no peers."""
    gpus = [nvml.gpus[place] for place in pair if not _divided(nvml.gpus[place])]
    refused = (gap for gpu in gpus if gpu.health.mig is None for gap in gaps_of(nvml, gpu, "nvmlDeviceGetMigMode"))
    return any(not gap.absent for gap in refused)


def _evaluate(nvml: NvmlReading, status: str, by_design: str | None, pairs: list[Place]) -> Finding:
    subject = _subject(nvml, pairs, status)
    seen = f"{status} for {len(pairs)} pair{'s' * (len(pairs) > 1)}"
    if status == "OK":
        return subject.passes(seen)
    if by_design is not None:
        return subject.skips(by_design, seen, "OK", status=status)
    why = _refusal(status)
    return subject.finding(why.verdict, why.code, seen, "OK", status=status)


def _refusal(status: str) -> Refusal:
    verdict = Verdict.WARN if status in ("CNS", "TNS") else Verdict.FAIL
    return Refusal(verdict, CODES.get(status, "p2p.status-not-ok"))


def _unread(nvml: NvmlReading, pairs: list[Place]) -> Iterator[Finding]:
    """Yield one finding for each reason why NVML did not report a pair; a lost GPU is the inventory's."""
    groups: dict[tuple[int, str] | None, list[tuple[Place, NvmlGap | None]]] = defaultdict(list)
    for pair in pairs:
        ids = [nvml.gpus[place].pci_bus_id for place in pair]
        names = [f"pair:{one}-{other}" for one, other in (ids, ids[::-1])]
        gaps = [gap for gap in nvml.gaps if gap.call == CALL and gap.subject in names]
        gap = next((gap for gap in gaps if gap.code in LOST), gaps[0] if gaps else None)
        groups[(gap.code, gap.name) if gap else None].append((pair, gap))
    for members in groups.values():
        gap, count = members[0][1], len(members)
        lines = (evidence(gap),) if gap else ()
        subject = _subject(nvml, [pair for pair, _ in members], "not reported", lines)
        if gap is None:
            yield subject.unknown("p2p.status-not-reported", pairs=count)
            continue
        error = gap.name.removeprefix("NVMLError_")
        if gap.absent:
            yield subject.skips("p2p.status-not-offered", pairs=count, error=error, number=gap.code)
        elif gap.code in LOST:
            yield subject.unknown("p2p.gpu-lost", pairs=count, number=gap.code, because_of="inventory")
        elif gap.code == DEFECT:
            yield subject.unknown("p2p.status-unreadable", pairs=count, error=error)
        else:
            yield subject.unknown("p2p.status-failed", pairs=count, error=error, number=gap.code)


def _links_without_p2p(nvml: NvmlReading, nvlinks: NvLinks) -> Iterator[Finding]:
    """Ports that are up prove no path: on NVSwitch boards the fabric must have been set up too.

    While the fabric is being set up there is no access, which the fabric check reports.
    """
    if any(map(_waits_for_fabric, nvml.gpus)):
        return
    dead = [
        pair
        for pair in combinations(range(len(nvml.gpus)), 2)
        if nvlinks.between(*pair).links and p2p_status(nvml, pair, ("nvlink",)) not in ("OK", None)
    ]
    if any(_mig_refused(nvml, pair) for pair in dead):
        return
    if dead and not any(_divided(nvml.gpus[place]) for pair in dead for place in pair):
        switched = any(nvlinks.switches(place) for pair in dead for place in pair)
        subject = _subject(nvml, dead, "NVLink not OK", name="host")
        seen = f"{len(dead)} pair{'s' * (len(dead) > 1)} without NVLink P2P"
        if not switched and nvml.confidential is not None and nvml.confidential.enabled:
            yield subject.unknown("p2p.nvlinks-confidential", seen, "OK")
        else:
            yield subject.fails(NOT_SET_UP if switched else "p2p.nvlinks-unused", seen, "OK")


def _waits_for_fabric(gpu: Gpu) -> bool:
    """GPUs at bridges have no fabric and wait for none; those of a rack wait for its switch trays."""
    if gpu.fabric is None or gpu.fabric.state == "completed":
        return False
    return gpu.fabric.state != "not-supported" or is_tray_gpu(gpu)


def _subject(
    nvml: NvmlReading, pairs: list[Place], status: str, lines: tuple[str, ...] = (), *, name: str | None = None
) -> Subject:
    names = ["-".join(nvml.gpus[place].pci_bus_id for place in pair) for pair in pairs]
    more = (f"and {len(names) - SHOWN} more pairs",) if len(names) > SHOWN else ()
    return Subject(
        check=NAME,
        name=name or (f"pair:{names[0]}" if len(names) == 1 else "host"),
        evidence=(*lines, *(f"{CALL} {name}: {status}" for name in names[:SHOWN]), *more),
    )


def rule(case: Case) -> Iterator[Finding]:
    """One finding for each reason, and what was granted although the stock driver never grants it."""
    m = case.machine
    yield from _over_nvlink(m)
    groups: dict[tuple[Refusal, str | None], list[Pair]] = {}
    for pair in m.pairs:
        if m.access[pair] is False and not _is_joined(m, pair):
            why = _reason(m, pair)
            named = why.code == "access.status-unexplained" or why.code.startswith("p2p.")
            groups.setdefault((why, m.status(pair) if named else None), []).append(pair)
    for (why, status), pairs in groups.items():
        if why.code not in MAY_COST_NOTHING or not _costs_nothing(m, pairs):
            yield _staged_finding(m, why, {"status": status} if status else {}, pairs)
    granted = m.granted_over_pcie
    if granted and m.is_geforce and not _compared(m):
        seen = f"P2P granted on {len(granted)} of {len(m.pairs)} pairs"
        yield observed(NAME).unknown("access.grant-unchecked", seen, "data that was compared")


def _compared(m: Machine) -> bool:
    seen = m.measured
    checked = any(row.wrong is not None for row in seen.collectives)
    return seen.integrity_bad_pairs is not None or bool(seen.damaged or seen.damage or seen.bytes_compared or checked)


def _reason(m: Machine, pair: Pair) -> Refusal:
    status, names = m.status(pair), [m.gpu(i).model for i in pair]
    small = ("rebar-off",) if m.has_small_bar(pair) else ()
    by_status = _refusal(status or "")
    if status == "DR":
        return by_status
    if all(map(is_geforce_without_p2p, names)):
        others = (*(("vm-no-p2p",) if m.host.virtual else ()), *small)
        return Refusal(Verdict.PASS, "access.geforce-staged", others)
    if m.mesh and not m.mesh[pair]:
        return Refusal(Verdict.PASS, "access.mesh-staged")
    if status == "TNS":
        return Refusal(Verdict.PASS, "access.socket-staged")
    if m.host.virtual:
        # An instance without P2P on any pair, of cards that are sold without NVLink: its type is made so.
        offer = (
            not any(map(m.links, m.pairs))
            and not any(map(nvlink_of, names))
            and all(a is False for a in m.access.values())
        )
        code = "access.guest-emulates-chipset" if status == "CNS" else "access.guest-hides-path"
        return Refusal(Verdict.PASS if offer else Verdict.WARN, code)
    if None not in names and names[0] != names[1]:
        return Refusal(Verdict.PASS, "access.models-differ")
    if _only_far_refused(m, pair):
        return Refusal(Verdict.PASS, "access.socket-staged")
    if small:
        return Refusal(Verdict.WARN, "access.small-window")
    if status and m.host.virtual is False:
        return by_status
    unexplained = "access.status-unexplained" if status else "access.reason-unknown"
    code = "access.chipset-unexplained" if status == "CNS" else unexplained
    return Refusal(Verdict.UNKNOWN if m.host.virtual is None else Verdict.WARN, code)


def _only_far_refused(m: Machine, pair: Pair) -> bool:
    """Return whether pairs inside a node have P2P and pairs across do not; without classes, islands of equal GPUs.

    No board of GPUs with NVLink is divided, but for the meshes; and one GPU alone may have lost its peers.
    """
    if not m.granted or _is_on_one_board(m, pair):
        return False
    if m.crosses(pair) is not None:
        return bool(m.crosses(pair)) and not any(m.crosses(other) and not m.links(other) for other in m.granted)
    island = {i: {j for other in m.granted if i in other for j in other} | {i} for i in range(m.count)}
    whole = all(island[j] == island[i] and len(island[i]) > 1 for i in island for j in island[i])
    return whole and island[pair[0]] != island[pair[1]] and m.host.sockets != 1


def _is_on_one_board(m: Machine, pair: Pair) -> bool:
    """Return whether both GPUs are of a product whose NVLinks join all GPUs of a host."""
    links = [model.nvlink for i in pair if (model := m.models[i]) and model.nvlink and not model.nvlink.bridge]
    return len(links) == len(pair) and not any(one.links in MESHED for one in links)


def _costs_nothing(m: Machine, pairs: list[Pair]) -> bool:
    without = [min(rates) for pair in pairs if (rates := m.one_way(pair))]
    having = [min(rates) for pair in m.granted if (rates := m.one_way(pair))]
    return bool(without and having) and max(without) >= AS_FAST * max(having)


def _staged_finding(m: Machine, why: Refusal, values: dict[str, str], pairs: list[Pair]) -> Finding:
    rates = [min(ways) for pair in pairs if (ways := m.one_way(pair))]
    usual = [found.gb_s for pair in pairs if (found := staged(m, pair))]
    through_host = f", {span(rates)} GB/s through host memory" if rates else ""
    reached = f"staged copies: {span(rates)} GB/s one way{f', usual {span(usual)}' if usual else ''}"
    name = "host" if len(pairs) == len(m.pairs) > 1 else m.subject(pairs)
    subject = observed(NAME, name, *_lines(m, pairs), *((reached,) if rates else ()))
    seen = f"no P2P on {len(pairs)} of {len(m.pairs)} pairs{through_host}"
    if why.verdict is Verdict.PASS:
        return subject.explains(why.code, seen, others=why.others, **values)
    return subject.finding(why.verdict, why.code, seen, "P2P", others=why.others, **values)


def _lines(m: Machine, pairs: list[Pair]) -> tuple[str, ...]:
    words = sorted({str(m.status(pair)) for pair in pairs} - {"None"})
    return (f"pairs: {listed(pairs)}", *(f"P2P status {word}" for word in words))


def _over_nvlink(m: Machine) -> Iterator[Finding]:
    denied = [pair for pair in m.pairs if m.access[pair] is False and _is_joined(m, pair)]
    if denied:
        code, others = (NOT_SET_UP, ()) if m.is_nvswitch else ("access.nvlink-denied", ("nvlink-down",))
        seen = f"no P2P on {len(denied)} of {len(m.pairs)} pairs"
        subject = observed(NAME, m.subject(denied), *_lines(m, denied))
        yield subject.fails(code, seen, "copies over NVLink", others=others)


def _is_joined(m: Machine, pair: Pair) -> bool:
    """Return whether NVLink joins a pair by the matrix, or by the product if the matrix shows a fabric that is down."""
    return bool(m.links(pair)) or bool(m.is_nvswitch and m.seen.matrix)


def copied_as_staged(m: Machine, rows: dict[Pair, Level]) -> Finding:
    """Return the finding for pairs that copy at the rate of host memory, of a product or guest that may have no P2P."""
    others = ("rebar-off",) if any(map(m.has_small_bar, rows)) else ()
    host = observed(NAME, "host", f"pairs: {listed(rows)}, {span(row.value for row in rows.values())} GB/s")
    seen = f"no P2P on {len(rows)} of {len(m.pairs)} pairs"
    if m.is_geforce:
        return host.unknown("access.geforce-as-staged", seen, "P2P status", others=others)
    return host.warns("access.guest-as-staged", seen, "P2P", others=others)


def rule_unmeasured(case: Case) -> Iterator[Finding]:
    """A product without P2P of which the links were read and nothing was measured."""
    m = case.machine
    unknown = bool(m.pairs) and all(m.access[pair] is None for pair in m.pairs)
    if unknown and m.is_geforce and not any(map(m.one_way, m.pairs)) and all(gpu.pcie.width for gpu in m.seen.gpus):
        yield observed(NAME).explains("access.geforce-unmeasured", "links read, nothing measured")


TOPOLOGY = "topology"
ANCESTOR = "nvmlDeviceGetTopologyCommonAncestor"


@with_gpus(TOPOLOGY)
def topology(facts: Facts, nvml: NvmlReading) -> Iterator[Finding]:
    """Topology: do NVML and sysfs agree on how the GPUs are connected?

    Sources: nvmlDeviceGetTopologyCommonAncestor and the NVLink peers, against the bridge chains in sysfs. A source that
    could not be read agrees with nothing.
    """
    view = View(nvml, {device.bus_id.lower(): device for device in facts.pci})
    own = list(pair_findings(view))
    yield from own
    # A SKIP of copies through host memory has a value; one without a value leaves the class unknown.
    if any(finding.verdict in (Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN) or finding.seen is None for finding in own):
        return
    if not view.pairs:
        yield Subject(check=TOPOLOGY).skips("p2p.single-gpu", "1 GPU")
        return
    compared, classes = view.compared(), [view.cell(*pair) or "?" for pair in view.pairs]
    seen = ", ".join(f"{classes.count(cls)} x {cls}" for cls in dict.fromkeys(classes))
    labels = ("-".join(f"GPU{gpu.index}" for gpu in view.gpus(*pair)) for pair in view.pairs)
    lines = [f"class by NVML and by sysfs, and the same: {compared} of {len(classes)} pairs"]
    lines += (f"{label}: {cls}" for label, cls in zip(labels, classes, strict=True))
    subject = Subject(check=TOPOLOGY, evidence=tuple(lines))
    refused = [gap for gap in nvml.gaps if gap.call == ANCESTOR and not gap.absent]
    if refused:
        error, number = refused[0].name.removeprefix("NVMLError_"), refused[0].code
        root = "inventory" if number in LOST else None
        code = "p2p.ancestor-unreadable" if number == DEFECT else "p2p.agreement-unknown"
        yield subject.unknown(code, seen, because_of=root, error=error, number=number)
        return
    if compared:
        yield subject.passes(seen)
        return
    by_nvml = any(any(view.ancestors(*pair)) for pair in view.pairs)
    yield subject.skips("p2p.no-path-in-sysfs" if by_nvml else "p2p.no-class-from-nvml", seen)


CHECK = quick_check(NAME, "hardware", evaluate, ("nvml", "pci", "system"))
CHECKS = (CHECK, quick_check(TOPOLOGY, "hardware", topology, ("nvml", "pci")))
