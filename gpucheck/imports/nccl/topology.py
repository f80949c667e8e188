"""NCCL's topology XML: what NCCL_TOPO_DUMP_FILE writes, and what cloud vendors publish for NCCL_TOPO_FILE.

Elements as NVIDIA/nccl src/graph/xml.cc reads and writes them. A ``cpu`` is a NUMA node; a ``pci`` with children is a
PCIe switch, named by its upstream port; host bridges and root ports are not written. So two devices of one NUMA node
with no switch in common may share a host bridge (PHB) or not (NODE): they are counted as NODE, the farther one.

Only a dump of NCCL itself has ``gpu`` elements, and NVLinks in them. The files of vendors (aws-ofi-nccl,
azhpc-images) have none: NCCL adds the NVLinks that NVML reports on the machine.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from gpucheck.imports._kind import Damage, Kind, of_topology
from gpucheck.imports._text import ImportProblem, linux_bus_id, quoted, regex, until
from gpucheck.knowledge.codes import Subject
from gpucheck.model.finding import Finding
from gpucheck.model.host.hardware import PcieLink
from gpucheck.model.host.wiring import NVSWITCH, Nic, NumaNode, NvLinkBundle, Pair, TopologyGpu, WiredFunction, Wiring
from gpucheck.model.paste import Part
from gpucheck.model.topology import Topology

TITLE = "NCCL topology XML"
AGAIN = "Dump it again: NCCL_TOPO_DUMP_FILE=topo.xml, then any NCCL program with GPUs"
DOCTYPE = regex(r"<!(?:DOCTYPE|ENTITY)\b")
MOST_ELEMENTS = 50_000  # the largest multi-node dump has a few thousand
MOST_DEPTH = 64
LONGEST_NAME = 64


def _parsed(text: str, first_line: int) -> Element:
    """Return the outermost element. Without a document type there are no entities, and nothing outside is opened."""
    why, line = "", first_line
    if declared := DOCTYPE.search(text):
        why = "it declares a document type; NCCL writes none, and entities are never expanded"
        line += text.count("\n", 0, declared.start())
    elif text.count("<") > 2 * MOST_ELEMENTS:
        why = f"it has more than {MOST_ELEMENTS} elements; a topology has some thousand at most"
    else:
        try:
            parser = ElementTree.XMLParser(encoding="utf-8")  # noqa: S314 - without a document type
            return ElementTree.fromstring(text.encode("utf-8", errors="replace"), parser)  # noqa: S314
        except ElementTree.ParseError as error:
            what = str(error).partition(": line ")[0]
            why, line = f"the XML is broken or cut short: {what}", line + error.position[0] - 1
    raise ImportProblem(f"{TITLE} cannot be read", line=line, why=why, do=AGAIN)


def _get(element: Element, name: str) -> str:
    return element.get(name, "").strip()


GPU_CLASSES = ("0x0302", "0x0300")
NIC_CLASSES = ("0x0200", "0x0207")
NVSWITCH_CLASS = "0x068000"
GENERATION = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}  # by GT/s
MOST_GPUS = 1024
MOST_NICS = 1024
MOST_CPUS = 1 << 15


@dataclass
class Leaf:
    """A GPU or network card. chain: bus ids of the switches above it, the CPU's side first. host: where dumps of
    several hosts are fused, which one. peers, switches: NVLinks by the far end's bus id. nvlinks: whether the file
    has a gpu element, which lists them."""

    bus_id: str
    host: str
    numa_node: int | None
    chain: tuple[str, ...]
    link: PcieLink
    name: str = ""
    device: int | None = None
    rank: int | None = None
    compute_capability: int = 0
    peers: dict[str, int] = field(default_factory=dict)
    switches: dict[str, int] = field(default_factory=dict)
    nvlinks: bool = False


@dataclass
class System:
    """Everything in the file. switches: bridges before what is below them. oddities: what was skipped, as text."""

    gpus: list[Leaf] = field(default_factory=list)
    nics: list[Leaf] = field(default_factory=list)
    nodes: list[NumaNode] = field(default_factory=list)
    switches: list[WiredFunction] = field(default_factory=list)
    oddities: list[str] = field(default_factory=list)

    def node_of(self, leaf: Leaf) -> NumaNode | None:
        return next((node for node in self.nodes if node.index == leaf.numa_node), None)

    @property
    def lists_nvlinks(self) -> bool:
        return any(gpu.nvlinks for gpu in self.gpus)

    def cpu(self, element: Element) -> None:
        numa, host = _number(_get(element, "numaid")), _get(element, "host_hash")
        if numa is None:
            self.oddities.append(f"numaid {quoted(_get(element, 'numaid'))} is not a NUMA node")
        self.nodes.append(
            NumaNode(
                index=numa,
                cpus=cpu_list(_get(element, "affinity")),
                arch=_get(element, "arch") or None,
                vendor=_get(element, "vendor") or None,
                family=_family(_number(_get(element, "familyid"))),
                cpu_model=_number(_get(element, "modelid")),
            )
        )
        for child in element:
            self.element(child, host, numa, ())

    def element(self, element: Element, host: str, numa: int | None, chain: tuple[str, ...]) -> None:
        if element.tag == "pci":
            self.pci(element, host, numa, chain)
        elif element.tag == "nic":
            for net in element.findall("net")[:MOST_NICS]:
                self.nic(net, Leaf("", host, numa, chain, PcieLink()))
        elif element.tag in ("gpu", "net"):
            self.oddities.append(f"{element.tag} is not inside a pci element")

    def pci(self, element: Element, host: str, numa: int | None, chain: tuple[str, ...]) -> None:
        bus_id = linux_bus_id(_get(element, "busid"))
        if bus_id is None or len(chain) >= MOST_DEPTH:
            self.oddities.append(f"busid {quoted(_get(element, 'busid'))} is not a PCI bus id below a few bridges")
            return
        kind, inner = _get(element, "class").lower(), element.findall("pci")
        leaf = Leaf(bus_id, host, numa, chain, link_of(element))
        gpus, nets = element.findall("gpu"), [net for nic in element.findall("nic") for net in nic.findall("net")]
        if gpus or (kind.startswith(GPU_CLASSES) and not inner):
            self.gpu(gpus[0] if gpus else None, leaf)
        elif nets or (kind.startswith(NIC_CLASSES) and not inner):
            for net in nets[:MOST_NICS]:
                self.nic(net, Leaf(bus_id, host, numa, chain, leaf.link))
            if not nets:
                self.nic(None, leaf)
        if inner:
            self.switches.append(
                WiredFunction(
                    bus_id=bus_id,
                    kind="switch-upstream",
                    above=chain[-1] if chain else None,
                    numa_node=numa,
                    link=_uplink(leaf.link),
                )
            )
        for child in inner:
            self.pci(child, host, numa, (*chain, bus_id))

    def gpu(self, element: Element | None, leaf: Leaf) -> None:
        if len(self.gpus) >= MOST_GPUS:
            return
        if any((gpu.host, gpu.bus_id) == (leaf.host, leaf.bus_id) for gpu in self.gpus):
            if element is not None:
                self.oddities.append(f"GPU {leaf.bus_id} is written twice")
            return
        self.gpus.append(leaf)
        if element is None:
            return
        leaf.nvlinks = True
        leaf.device, leaf.rank = _number(_get(element, "dev")), _number(_get(element, "rank"))
        leaf.compute_capability = _number(_get(element, "sm")) or 0
        for link in element.findall("nvlink"):
            target, count = _get(link, "target").lower(), _number(_get(link, "count"))
            kind = _get(link, "tclass").lower()
            if not count or count > 64:
                self.oddities.append(f"nvlink to {quoted(target)} has count {quoted(_get(link, 'count'))}")
            elif kind == NVSWITCH_CLASS or target.startswith("ffff"):
                leaf.switches[target] = leaf.switches.get(target, 0) + count
            elif kind.startswith(GPU_CLASSES) or not kind:
                peer = linux_bus_id(target) or target
                leaf.peers[peer] = leaf.peers.get(peer, 0) + count

    def nic(self, element: Element | None, leaf: Leaf) -> None:
        if len(self.nics) < MOST_NICS:
            leaf.name = _get(element, "name")[:LONGEST_NAME] if element is not None else ""
            self.nics.append(leaf)


def read_system(root: Element) -> System:
    """Walk the file. Nothing is rejected here: what does not fit becomes an oddity."""
    system = System()
    for element in sorted(root, key=lambda child: child.tag != "cpu"):
        if element.tag == "cpu":
            system.cpu(element)
        else:
            system.element(element, "", None, ())
    system.gpus = _ordered(system.gpus)
    # One socket interface is written below every CPU, although it is one card.
    system.nics = [*{(nic.host, nic.bus_id, nic.name): nic for nic in reversed(system.nics)}.values()][::-1]
    return system


def _ordered(gpus: list[Leaf]) -> list[Leaf]:
    """By NVML index, which every process of a host agrees on unless containers hide GPUs; else by rank; else as is."""
    for key in ("device", "rank"):
        values = [getattr(gpu, key) for gpu in gpus]
        if None not in values and len(set(values)) == len(values):
            return sorted(gpus, key=lambda gpu: getattr(gpu, key))
    return gpus


def link_of(element: Element) -> PcieLink:
    """NCCL writes the lesser of what the device and the port above it can do; 0 or empty where it could not look."""
    speed = re.match(r"\d{1,3}(\.\d)?", _get(element, "link_speed"))
    generation = GENERATION.get(float(speed[0])) if speed else None
    width = _number(_get(element, "link_width"))
    return PcieLink(max_generation=generation, max_width=width if width in (1, 2, 4, 8, 12, 16, 32) else None)


def _uplink(link: PcieLink) -> PcieLink:
    """Whether this is a virtual machine's bridge: 2.5 GT/s x1, which no switch above a GPU has."""
    return PcieLink() if (link.max_generation, link.max_width) == (1, 1) else link


def cpu_list(mask: str) -> str | None:
    """Return ``00ff,000000ff`` (32-bit words, highest first) as ``0-7,32-39``; None if empty or not a mask."""
    words = mask.split(",")
    if not all(re.fullmatch(r"[0-9a-fA-F]{1,8}", word) for word in words) or len(words) * 32 > MOST_CPUS:
        return None
    bits = 0
    for word in words:
        bits = bits << 32 | int(word, 16)
    ranges, cpu = [], 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        ones = (~bits & (bits + 1)).bit_length() - 1
        first, last = cpu + zeros, cpu + zeros + ones - 1
        ranges.append(f"{first}-{last}" if last > first else str(first))
        bits >>= ones
        cpu = last + 1
    return ",".join(ranges) or None


def _number(text: str) -> int | None:
    if re.fullmatch(r"\d{1,9}", text):
        return int(text)
    return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,7}", text) else None


def _family(number: int | None) -> int | None:
    """NCCL writes base + (extended << 4), where /proc/cpuinfo has base + extended: 175 is family 25 (Zen 3 and 4)."""
    return number if number is None or number < 16 else (number & 15) + (number >> 4)


SOURCE = "nccl-xml"
SUBJECT = Subject(check="topology")
BEGIN = regex(r"<\?xml|<!DOCTYPE|<system\b")
SHAPE = regex(r"<system\b[^<>]{0,200}>\s*(?:<!--|<cpu\b|<pci\b|<gpu\b|<nic\b|</system|\Z)|<system\s+version\s*=")
BEGIN_OF_ANY = regex(rf"{BEGIN.pattern}|<graphs\s+version")


def parse(lines: list[str]) -> Part:
    """Return the GPUs in NVML's order if the dump has it (``dev``), else by rank, else by place in the file."""
    text = "\n".join(lines)
    begin, end = BEGIN.search(text), text.rfind("</system>")
    if begin is None or not SHAPE.search(text):
        why = "this is a graph dump of NCCL (NCCL_GRAPH_DUMP_FILE), which holds rings and trees, not the machine"
        raise ImportProblem(f"no {TITLE} in the input", why=why, do=AGAIN)
    first_line = text.count("\n", 0, begin.start()) + 1
    root = _parsed(text[begin.start() : end + len("</system>") if end > begin.start() else len(text)], first_line)
    system = read_system(root)
    if root.tag != "system" or not system.gpus:
        why = "it has neither a gpu element nor a pci element of class 0x0302"
        if root.tag != "system":
            why = f"the outermost element is {quoted(root.tag)}, not system"
        raise ImportProblem(f"no GPU in this {TITLE}", line=first_line, why=why, do=AGAIN)
    return of_topology(_topology(system), map(Damage, _findings(system)))


def _topology(system: System) -> Topology:
    gpus, nics = system.gpus, system.nics
    cells = {(i, j): _cell(gpus[i], gpus[j]) for i, j in combinations(range(len(gpus)), 2)}
    matrix = tuple(
        tuple("X" if i == j else cells[min(i, j), max(i, j)] for j in range(len(gpus))) for i in range(len(gpus))
    )
    return Topology(
        source=SOURCE,
        gpus=tuple(_gpu(i, leaf, system) for i, leaf in enumerate(gpus)),
        matrix=matrix,
        nics=tuple(
            Nic(
                label=f"NIC{i}",
                name=nic.name or nic.bus_id or None,
                classes=tuple(path_class(nic, gpu) for gpu in gpus),
                peers=tuple("X" if nic is other else path_class(nic, other) for other in nics),
                pci_bus_id=nic.bus_id or None,
                numa_node=nic.numa_node,
            )
            for i, nic in enumerate(nics)
        ),
        pairs=tuple(Pair(a=i, b=j, cls=cls) for (i, j), cls in cells.items()),
        wiring=_wiring(system),
    )


def _cell(a: Leaf, b: Leaf) -> str | None:
    links = _nvlinks(a, b)
    return f"NV{links}" if links else path_class(a, b)


def _nvlinks(a: Leaf, b: Leaf) -> int:
    """Count direct links as the end with more of them reports, links to switches as the GPU with fewer has."""
    direct = max(a.peers.get(b.bus_id, 0), b.peers.get(a.bus_id, 0))
    return direct or min(sum(a.switches.values()), sum(b.switches.values()))


def path_class(a: Leaf, b: Leaf) -> str | None:
    """PIX in one switch, PXB below a common one, NODE in one NUMA node, SYS between them; None between two hosts."""
    if a.host != b.host:
        return None
    if a.chain and b.chain and a.chain[0] == b.chain[0]:
        return "PIX" if a.chain == b.chain else "PXB"
    if a.numa_node is None or b.numa_node is None:
        return None
    return "NODE" if a.numa_node == b.numa_node else "SYS"


def _gpu(index: int, leaf: Leaf, system: System) -> TopologyGpu:
    node = system.node_of(leaf)
    sm = leaf.compute_capability
    return TopologyGpu(
        index=index,
        pci_bus_id=leaf.bus_id or None,
        compute_capability=f"{sm // 10}.{sm % 10}" if sm else None,
        numa_node=leaf.numa_node,
        cpu_affinity=node.cpus if node else None,
        numa_affinity=None if leaf.numa_node is None else str(leaf.numa_node),
    )


def _wiring(system: System) -> Wiring | None:
    """None where dumps of several hosts were fused: their bus ids are the same."""
    if len({leaf.host for leaf in (*system.gpus, *system.nics)}) > 1:
        return None
    leaves = [(f"GPU{i}", "gpu", leaf) for i, leaf in enumerate(system.gpus)]
    leaves += [(f"NIC{i}", "nic", leaf) for i, leaf in enumerate(system.nics)]
    functions = (
        WiredFunction(
            bus_id=leaf.bus_id or label,
            kind="gpu" if kind == "gpu" else "nic",
            label=label,
            above=leaf.chain[-1] if leaf.chain else None,
            numa_node=leaf.numa_node,
            link=leaf.link,
        )
        for label, kind, leaf in leaves
    )
    return Wiring(
        nodes=tuple(system.nodes),
        functions=(*system.switches, *functions),
        nvlinks=tuple(_bundles(system.gpus)),
        nvlinks_known=system.lists_nvlinks,
    )


def _bundles(gpus: list[Leaf]) -> Iterator[NvLinkBundle]:
    number = {gpu.bus_id: i for i, gpu in enumerate(gpus)}
    for i, gpu in enumerate(gpus):
        for peer, links in gpu.peers.items():
            j = number.get(peer)
            if j is not None and (i < j or gpu.bus_id not in gpus[j].peers):
                yield NvLinkBundle(a=f"GPU{i}", b=f"GPU{j}", links=links)
        for switch, links in gpu.switches.items():
            yield NvLinkBundle(a=f"GPU{i}", b=NVSWITCH if switch.startswith("ffff") else switch, links=links)


def _findings(system: System) -> Iterator[Finding]:
    near = [(a, b) for a, b in combinations(system.gpus, 2) if _cell(a, b) == "NODE"]
    vague = sum(a.bus_id.split(":")[0] == b.bus_id.split(":")[0] for a, b in near)
    if vague:
        yield SUBJECT.skips("topology.host-bridges-unnamed", f"{vague} pairs are NODE that may be PHB")
    if not system.lists_nvlinks:
        yield SUBJECT.skips("topology.file-without-nvlinks", "NVLinks not listed")
    unplaced = [gpu for gpu in system.gpus if gpu.numa_node is None]
    if unplaced:
        seen = f"{len(unplaced)} of {len(system.gpus)} GPUs outside any cpu element with a NUMA node"
        yield SUBJECT.unknown("topology.gpus-without-node", seen, "every GPU below a cpu element")
    yield from _nvlink_findings(system)
    for problem in system.oddities[:8]:
        yield SUBJECT.warns("topology.file-unexpected", problem, "the file as NCCL writes it")


def _nvlink_findings(system: System) -> Iterator[Finding]:
    for a, b in combinations(system.gpus, 2):
        ends = a.peers.get(b.bus_id, 0), b.peers.get(a.bus_id, 0)
        if ends[0] != ends[1]:
            pair = Subject(check=SUBJECT.check, name=f"pair:{a.bus_id}-{b.bus_id}", unit="links")
            yield pair.warns("topology.link-ends-uneven", min(ends), max(ends))
    totals = [sum(gpu.switches.values()) for gpu in system.gpus]
    most = max(totals)
    for gpu, links in zip(system.gpus, totals, strict=True):
        if links < most and sum(totals) > most:
            subject = Subject(check=SUBJECT.check, name=f"gpu:{gpu.bus_id}", unit="links")
            yield subject.warns("topology.switch-links-uneven", links, most)


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    return until(lines, lambda line: "<" in line and BEGIN_OF_ANY.search(line), "</system>", "</graphs>")


XML = Kind("nccl-topology", TITLE, parse, hints=("<system", "<graphs"), blocks=_blocks)
