"""A wiring as nested boxes: NUMA nodes hold host bridges, these hold switches, these hold GPUs and network cards."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from gpucheck.model import NVSWITCH, Finding, NvLinkBundle, PcieLink, Topology, Verdict, WiredFunction, Wiring
from gpucheck.model.finding import BUS_ID, bus_ids
from gpucheck.render.words import plural

BAD = (Verdict.FAIL, Verdict.WARN)
SIGN = {Verdict.FAIL: "\u00d7", Verdict.WARN: "!"}


class FaultMark(NamedTuple):
    """The worst finding about one place. cause: its key, or the check without one. links: whether NVLinks fail."""

    verdict: Verdict
    cause: str
    links: bool

    @property
    def words(self) -> str:
        """``FAIL nvlink-down``."""
        return f"{self.verdict.name} {self.cause}"


def faults(findings: Iterable[Finding]) -> dict[frozenset[str], FaultMark]:
    """Return the worst finding of each bus id, and of each pair of them."""
    found: dict[frozenset[str], FaultMark] = {}
    for finding in findings:
        place = frozenset(bus_ids(finding.subject))
        if finding.verdict not in BAD or not place:
            continue
        before = found.get(place)
        links = finding.check.startswith("nvlink") or bool(before and before.links)
        if before is None or BAD.index(finding.verdict) < BAD.index(before.verdict):
            found[place] = FaultMark(finding.verdict, finding.cause or finding.check, links)
        else:
            found[place] = before._replace(links=links)
    return found


class Absent(NamedTuple):
    """A GPU that the host has and the topology has not. number: its index, None if unknown."""

    number: int | None
    bus_id: str
    fault: FaultMark

    @property
    def name(self) -> str:
        """As in the topology: ``GPU3``."""
        return "GPU" if self.number is None else f"GPU{self.number}"


def absent(topology: Topology, findings: Iterable[Finding]) -> list[Absent]:
    """Return each GPU that fails and that the topology does not contain: a lost one."""
    known = {gpu.pci_bus_id for gpu in topology.gpus}
    found: dict[str, Absent] = {}
    for finding in findings:
        if not finding.subject.startswith("gpu:") or finding.verdict not in BAD:
            continue
        (bus_id,) = bus_ids(finding.subject)
        if bus_id not in known and BUS_ID.fullmatch(bus_id):
            fault = FaultMark(finding.verdict, finding.cause or finding.check, links=False)
            found.setdefault(bus_id, Absent(finding.gpu_index, bus_id, fault))
    return list(found.values())


VENDOR = {"GenuineIntel": "Intel", "intel": "Intel", "AuthenticAMD": "AMD", "amd": "AMD"}


@dataclass
class Box:
    """title: what it is. name: of the model or device. detail: where it is. link: its PCIe link as text, with what it
    should be if it runs below that (reduced). Each is empty if unknown. fault: the worst finding about it."""

    kind: Literal["node", "root", "switch", "gpu", "nic"]
    title: str
    name: str = ""
    detail: str = ""
    link: str = ""
    reduced: bool = False
    inside: list["Box"] = field(default_factory=list)
    fault: FaultMark | None = None


def heading(topology: Topology, findings: Iterable[Finding] = ()) -> str:
    """How many GPUs, and of which model where it is one. findings: that can name GPUs which are not usable."""
    names, count = {gpu.name for gpu in topology.gpus}, len(topology.gpus)
    model = names.pop() if len(names) == 1 else None
    lost = len(absent(topology, findings)) if count else 0
    more = f", {lost} not usable" if lost else ""
    return (f"{count} x {model}" if model else plural(count, "GPU")) + more


def boxes(topology: Topology, findings: Iterable[Finding] = ()) -> list[Box]:
    """The NUMA nodes of a topology with all that is in them; nothing without a wiring.

    findings: about what is drawn; GPUs that only they name come last. Ports are left out: what a port's link can do is
    written at the device below it. The name of GPUs that are all of one model is left to the heading.
    """
    wiring = topology.wiring
    if wiring is None:
        return []
    one_model = len({gpu.name for gpu in topology.gpus}) == 1
    names = {f"GPU{gpu.index}": "" if one_model else gpu.name or "" for gpu in topology.gpus}
    names |= {nic.label: nic.name or "" for nic in topology.nics}
    children: dict[str | None, list[WiredFunction]] = {}
    for function in wiring.functions:
        children.setdefault(function.above, []).append(function)
    findings = tuple(findings)
    found = {next(iter(place)): fault for place, fault in faults(findings).items() if len(place) == 1}
    boxes = []
    for node in wiring.nodes:
        unnumbered = "host" if len(wiring.nodes) == 1 else "NUMA node unknown"
        title = unnumbered if node.index is None else f"NUMA node {node.index}"
        vendor = VENDOR.get(node.vendor or "", node.vendor or "")
        detail = ", ".join(word for word in (vendor, f"CPUs {node.cpus}" if node.cpus else "") if word)
        box = Box("node", title, detail=detail)
        top = [f for f in children.get(None, []) if f.numa_node == node.index]
        for root in dict.fromkeys(function.root for function in top):
            below = [b for f in top if f.root == root for b in _box(f, children, names, found, wiring.told)]
            box.inside += [Box("root", f"host bridge {root}", inside=below)] if root and below else below
        if box.inside:
            boxes.append(box)
    lost = [Box("gpu", gpu.name, detail=gpu.bus_id, fault=gpu.fault) for gpu in absent(topology, findings)]
    return [*boxes, Box("node", "not usable", inside=lost)] if lost else boxes


def _box(
    function: WiredFunction,
    children: dict[str | None, list[WiredFunction]],
    names: dict[str, str],
    found: dict[str, FaultMark],
    known: bool,
) -> list[Box]:
    below = [b for child in children.get(function.bus_id, []) for b in _box(child, children, names, found, known)]
    fault = found.get(function.bus_id)
    words, reduced = link_words(function.link, uplink=function.kind == "switch-upstream")
    if function.kind in ("gpu", "nic"):
        detail = function.bus_id if known else ""
        name = names.get(function.label, "")
        kind: Literal["gpu", "nic"] = "gpu" if function.kind == "gpu" else "nic"
        return [Box(kind, function.label, name if name != function.label else "", detail, words, reduced, fault=fault)]
    if function.kind == "switch-upstream" and below:
        return [Box("switch", "PCIe switch", "", function.bus_id if known else "", words, reduced, below, fault)]
    return below


def link_words(link: PcieLink, *, uplink: bool) -> tuple[str, bool]:
    """Return ``Gen5 x16``, or ``Gen5 x8 of x16`` for a link that lost lanes, and whether it lost lanes or speed.

    The generation of a device's own link is that of its maximum: an idle link lowers it.
    """
    generation, width = link.max_generation or link.generation, link.max_width or link.width
    if not generation or not width:
        return "", False
    lanes = link.width is not None and link.max_width is not None and link.width < link.max_width
    slow = uplink and bool(link.generation and link.max_generation and link.generation < link.max_generation)
    speed = f"Gen{link.generation} of Gen{generation}" if slow else f"Gen{generation}"
    return f"{speed} x{link.width} of x{width}" if lanes else f"{speed} x{width}", lanes or slow


def describe_link(generation: int | None, width: int | None) -> str:
    """Return ``Gen5 x16``; empty if neither is known."""
    return f"Gen{generation or '?'} x{width or '?'}" if generation or width else ""


def direct_links(wiring: Wiring) -> list[NvLinkBundle]:
    return [bundle for bundle in wiring.nvlinks if bundle.b.startswith("GPU")]


def switch_links(wiring: Wiring) -> dict[str, int]:
    """By GPU label, how many links lead to NVSwitches."""
    totals: dict[str, int] = {}
    for bundle in wiring.nvlinks:
        if not bundle.b.startswith("GPU"):
            totals[bundle.a] = totals.get(bundle.a, 0) + bundle.links
    return totals


def describe_switches(wiring: Wiring) -> str:
    """Return ``4 NVSwitches``; ``NVSwitch`` if their number is unknown, as they hide behind one address."""
    count = len({b.b for b in wiring.nvlinks if not b.b.startswith("GPU") and b.b != NVSWITCH})
    return f"{count} NVSwitch{'es' if count != 1 else ''}" if count else "NVSwitch"
