"""A topology as nested boxes, which a page draws, and its NVLinks as text."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpucheck.model import NVSWITCH, Finding, Nic, PcieLink, Topology, Verdict, WiredFunction, Wiring
from gpucheck.model.finding import BUS_ID, bus_ids
from gpucheck.printable import ranges
from gpucheck.render.blocks import Box, Cell
from gpucheck.render.words import plural

BAD = (Verdict.FAIL, Verdict.WARN)


class FaultMark(NamedTuple):
    """The worst finding about one place. cause: its key, or the check without one."""

    verdict: Verdict
    cause: str

    @property
    def words(self) -> str:
        """``FAIL nvlink-down``."""
        return f"{self.verdict.name} {self.cause}"


def faults(findings: Iterable[Finding]) -> dict[str, FaultMark]:
    """Return the worst finding of each bus id that findings are about."""
    found: dict[str, FaultMark] = {}
    for finding in sorted((one for one in findings if one.verdict in BAD), key=lambda one: BAD.index(one.verdict)):
        for bus_id in bus_ids(finding.subject) if not finding.subject.startswith("pair:") else ():
            found.setdefault(bus_id, FaultMark(finding.verdict, finding.cause or finding.check))
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
            fault = FaultMark(finding.verdict, finding.cause or finding.check)
            found.setdefault(bus_id, Absent(finding.gpu_index, bus_id, fault))
    return list(found.values())


def heading(topology: Topology, findings: Iterable[Finding] = ()) -> str:
    """How many GPUs, and of which model where it is one. findings: that can name GPUs which are not usable."""
    names, count = {gpu.name for gpu in topology.gpus}, len(topology.gpus)
    model = names.pop() if len(names) == 1 else None
    lost = len(absent(topology, findings)) if count else 0
    more = f", {lost} not usable" if lost else ""
    return (f"{count} x {model}" if model else plural(count, "GPU")) + more


VENDOR = {"GenuineIntel": "Intel", "intel": "Intel", "AuthenticAMD": "AMD", "amd": "AMD"}


def boxes(topology: Topology, wiring: Wiring, findings: Iterable[Finding] = ()) -> list[Box]:
    """The NUMA nodes of a topology with all that is in them.

    findings: about what is drawn; GPUs that only they name come last. Ports are left out: what a port's link can do is
    written at the device below it. The name of GPUs that are all of one model is left to the heading.
    """
    one_model = len({gpu.name for gpu in topology.gpus}) == 1
    names = {f"GPU{gpu.index}": "" if one_model else gpu.name or "" for gpu in topology.gpus}
    names |= {nic.label: nic.name or "" for nic in topology.nics if nic.name != nic.label}
    uses = {nic.label: _use(nic) for nic in topology.nics if nic.role}
    findings = tuple(findings)
    found = faults(findings)
    children: dict[str | None, list[WiredFunction]] = {}
    for function in wiring.functions:
        children.setdefault(function.above, []).append(function)

    def drawn(function: WiredFunction) -> list[Box]:
        inside = [box for child in children.get(function.bus_id, ()) for box in drawn(child)]
        is_switch = function.kind == "switch-upstream"
        if function.kind not in ("gpu", "nic") and not (is_switch and inside):
            return inside
        title = "PCIe switch" if is_switch else f"{function.label} {names.get(function.label, '')}".rstrip()
        link, reduced = link_words(function.link, uplink=is_switch)
        lines = [
            Cell(function.bus_id if wiring.told else ""),
            Cell(link, tone="off" if reduced else ""),
            Cell(uses.get(function.label, "")),
        ]
        return [_box("switch" if is_switch else function.kind, title, lines, found.get(function.bus_id), inside)]

    nodes = []
    for node in wiring.nodes:
        unnumbered = "host" if len(wiring.nodes) == 1 else "NUMA node unknown"
        title = unnumbered if node.index is None else f"NUMA node {node.index}"
        vendor, cpus = VENDOR.get(node.vendor or "", node.vendor or ""), f"CPUs {node.cpus}" if node.cpus else ""
        roots: dict[str, list[Box]] = {}
        for function in (one for one in children.get(None, ()) if one.numa_node == node.index):
            roots.setdefault(function.root, []).extend(drawn(function))
        inside: list[Box] = []
        for root, below in roots.items():
            inside += [Box("root", f"host bridge {root}", inside=below)] if root and below else below
        if inside:
            nodes.append(_box("node", title, [Cell(", ".join(filter(None, (vendor, cpus))))], None, inside))
    lost = [_box("gpu", gpu.name, [Cell(gpu.bus_id)], gpu.fault) for gpu in absent(topology, findings)]
    return [*nodes, Box("node", "not usable", inside=lost)] if lost else nodes


def _box(kind: str, title: str, lines: list[Cell], fault: FaultMark | None, inside: Iterable[Box] = ()) -> Box:
    tone = fault.verdict.value if fault else "off" if any(line.tone for line in lines) else ""
    lines += [Cell(fault.words, tone=tone)] if fault else []
    return Box(kind, title, [line for line in lines if line.text], tone, list(inside))


def _use(nic: Nic) -> str:
    """Return ``compute: 400 Gb/s``, with the state of each port that is not active."""
    ports = (
        f"{port.rate_gbit_s:g} Gb/s" if port.is_active and port.rate_gbit_s is not None else port.state or "unknown"
        for port in nic.ports
    )
    return ": ".join(filter(None, (nic.role, ", ".join(ports))))


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


def nvlinks(topology: Topology, wiring: Wiring) -> Iterator[str]:
    """Yield a line for each number of links: of GPUs to switches, then between two GPUs."""
    known = {f"GPU{gpu.index}": gpu.index for gpu in topology.gpus}  # a report of another host may name others
    switches, direct = Counter[int](), dict[int, list[str]]()
    for one in wiring.nvlinks:
        if one.a in known and one.b in known:
            direct.setdefault(one.links, []).append(f"{known[one.a]}-{known[one.b]}")
        elif one.a in known and not one.b.startswith("GPU"):
            switches[known[one.a]] += one.links
    count = len({one.b for one in wiring.nvlinks if not one.b.startswith("GPU")} - {NVSWITCH})
    named = f"{count} NVSwitch{'es' if count > 1 else ''}" if count else "the NVSwitches"
    for links in sorted({*switches.values()}, reverse=True):
        gpus = ranges(sorted(gpu for gpu, own in switches.items() if own == links))
        yield f"{links} NVLinks from GPU {gpus} to {named}: NV{links} between any two"
    for links in sorted(direct, reverse=True):
        yield f"NV{links}: {plural(links, 'link')} each between {', '.join(direct[links])}"
    if wiring.nvlinks_known and not wiring.nvlinks and len(known) > 1:
        yield "No NVLink between these GPUs."
