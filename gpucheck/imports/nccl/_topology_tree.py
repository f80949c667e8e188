"""The elements of an NCCL topology as leaves (GPUs, network cards) with the switches above them.

expat itself, not defusedxml: that package's last release is of 2021, and it bounds neither depth nor the number of
elements.
No document type is accepted, so there are no entities to expand and nothing outside the text is ever opened.
"""

import re
from dataclasses import dataclass, field
from xml.parsers import expat

from gpucheck.imports._common import linux_bus_id
from gpucheck.imports._problem import ImportProblem
from gpucheck.imports._text import quoted
from gpucheck.model.host.hardware import NumaNode, PcieLink, WiredFunction

MOST_ELEMENTS = 50_000
"""The largest multi-node dump has a few thousand."""
MOST_DEPTH = 64
MOST_ATTRIBUTE = 4096
"""Characters; the longest there are is the CPU mask, 9 characters for each 32 CPUs."""


@dataclass
class Element:
    """One element: its attributes, its children, and the line that it starts on (1-based)."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list["Element"] = field(default_factory=list)

    def get(self, name: str) -> str:
        """An attribute without the blanks around it, empty where it is absent."""
        return self.attributes.get(name, "").strip()

    def all(self, tag: str) -> list["Element"]:
        return [child for child in self.children if child.tag == tag]


def parse(text: str, title: str, first_line: int = 1) -> Element:
    """The root element. title: how a message names the dump. Raises ImportProblem for everything else.

    first_line: where `text` begins in the input. Character data is left out: what comes after the root is not read.
    """
    reader = _Reader(title, first_line)
    try:
        reader.parser.Parse(text.encode("utf-8", errors="replace"), True)
    except expat.ExpatError as error:
        if reader.root is None or reader.open:
            raise reader.problem(expat.ErrorString(error.code), error.lineno) from None
    if reader.root is None:
        raise reader.problem("no element found", 1)
    return reader.root


class _Reader:
    def __init__(self, title: str, first_line: int) -> None:
        self.title, self.first_line = title, first_line
        self.root: Element | None = None
        self.open: list[Element] = []
        self.count = 0
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end

    def problem(self, why: str, line: int) -> ImportProblem:
        return ImportProblem(
            f"{self.title} cannot be read",
            where=f"line {line + self.first_line - 1}",
            why=f"the XML is broken or cut short there: {why}",
            do="Dump it again: NCCL_TOPO_DUMP_FILE=topo.xml, then any NCCL program",
        )

    def _refuse(self, why: str) -> None:
        raise ImportProblem(
            f"{self.title} is rejected",
            where=f"line {self.parser.CurrentLineNumber + self.first_line - 1}",
            why=why,
            do="Import the file as NCCL wrote it: NCCL_TOPO_DUMP_FILE=topo.xml",
        )

    def _doctype(self, name: str, *_: object) -> None:
        self._refuse(f"it declares a document type, {quoted(name)}; NCCL writes none, and entities are never expanded")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if self.count > MOST_ELEMENTS:
            self._refuse(f"it has more than {MOST_ELEMENTS} elements; a topology has some thousand at most")
        if len(self.open) >= MOST_DEPTH:
            self._refuse(f"elements are nested more than {MOST_DEPTH} deep; PCI bridges are not")
        if any(len(value) > MOST_ATTRIBUTE for value in attributes.values()):
            self._refuse(f"an attribute of {quoted(tag)} is longer than {MOST_ATTRIBUTE} characters")
        element = Element(tag, attributes, self.parser.CurrentLineNumber + self.first_line - 1)
        if self.open:
            self.open[-1].children.append(element)
        else:
            self.root = element
        self.open.append(element)

    def _end(self, _: str) -> None:
        self.open.pop()


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

    gpus: tuple[Leaf, ...] = ()
    nics: tuple[Leaf, ...] = ()
    nodes: list[NumaNode] = field(default_factory=list)
    switches: list[WiredFunction] = field(default_factory=list)
    oddities: list[str] = field(default_factory=list)

    def node_of(self, leaf: Leaf) -> NumaNode | None:
        return next((node for node in self.nodes if node.index == leaf.numa_node), None)


def read_system(root: Element) -> System:
    """Walk the file. Nothing is rejected here: what does not fit becomes an oddity."""
    walk = _Walk()
    for cpu in root.all("cpu"):
        walk.cpu(cpu)
    for element in root.children:
        if element.tag != "cpu":
            walk.element(element, "", None, ())
    walk.system.gpus = _ordered(walk.gpus)
    # One socket interface is written below every CPU, although it is one card.
    walk.system.nics = tuple({(nic.host, nic.bus_id, nic.name): nic for nic in reversed(walk.nics)}.values())[::-1]
    return walk.system


class _Walk:
    def __init__(self) -> None:
        self.system = System()
        self.gpus: list[Leaf] = []
        self.nics: list[Leaf] = []
        self.hosts: dict[str, str] = {}

    def cpu(self, element: Element) -> None:
        numa, host = _number(element.get("numaid")), element.get("host_hash")
        if numa is None:
            self.unexpected(element, f"numaid {quoted(element.get('numaid'))} is not a NUMA node")
        self.system.nodes.append(
            NumaNode(
                index=numa,
                cpus=cpu_list(element.get("affinity")),
                arch=element.get("arch") or None,
                vendor=element.get("vendor") or None,
                family=_family(_number(element.get("familyid"))),
                cpu_model=_number(element.get("modelid")),
            )
        )
        for child in element.children:
            self.element(child, host, numa, ())

    def element(self, element: Element, host: str, numa: int | None, chain: tuple[str, ...]) -> None:
        if element.tag == "pci":
            self.pci(element, host, numa, chain)
        elif element.tag == "nic":
            for net in element.all("net")[:MOST_NICS]:
                self.nic(net, Leaf("", host, numa, chain, PcieLink()))
        elif element.tag in ("gpu", "net"):
            self.unexpected(element, f"{element.tag} is not inside a pci element")

    def pci(self, element: Element, host: str, numa: int | None, chain: tuple[str, ...]) -> None:
        bus_id = linux_bus_id(element.get("busid"))
        if bus_id is None:
            self.unexpected(element, f"busid {quoted(element.get('busid'))} is not a PCI bus id")
            return
        kind, inner = element.get("class").lower(), element.all("pci")
        leaf = Leaf(bus_id, host, numa, chain, link_of(element))
        gpus, nets = element.all("gpu"), [net for nic in element.all("nic") for net in nic.all("net")]
        if gpus or (kind.startswith(GPU_CLASSES) and not inner):
            self.gpu(gpus[0] if gpus else None, leaf)
        elif nets or (kind.startswith(NIC_CLASSES) and not inner):
            for net in nets[:MOST_NICS]:
                self.nic(net, Leaf(bus_id, host, numa, chain, leaf.link))
            if not nets:
                self.nic(None, leaf)
        if inner:
            self.system.switches.append(
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
                self.unexpected(element, f"GPU {leaf.bus_id} is written twice")
            return
        self.gpus.append(leaf)
        if element is None:
            return
        leaf.nvlinks = True
        leaf.device, leaf.rank = _number(element.get("dev")), _number(element.get("rank"))
        leaf.compute_capability = _number(element.get("sm")) or 0
        for link in element.all("nvlink"):
            target, count = link.get("target").lower(), _number(link.get("count"))
            kind = link.get("tclass").lower()
            if not count or count > 64:
                self.unexpected(link, f"nvlink to {quoted(target)} has count {quoted(link.get('count'))}")
            elif kind == NVSWITCH_CLASS or target.startswith("ffff"):
                leaf.switches[target] = leaf.switches.get(target, 0) + count
            elif kind.startswith(GPU_CLASSES) or not kind:
                peer = linux_bus_id(target) or target
                leaf.peers[peer] = leaf.peers.get(peer, 0) + count

    def nic(self, element: Element | None, leaf: Leaf) -> None:
        if len(self.nics) < MOST_NICS:
            leaf.name = element.get("name") if element is not None else ""
            self.nics.append(leaf)

    def unexpected(self, element: Element, what: str) -> None:
        self.system.oddities.append(f"line {element.line}: {what}")


def _ordered(gpus: list[Leaf]) -> tuple[Leaf, ...]:
    """By NVML index, which every process of a host agrees on unless containers hide GPUs; else by rank; else as is."""
    for key in ("device", "rank"):
        values = [getattr(gpu, key) for gpu in gpus]
        if None not in values and len(set(values)) == len(values):
            return tuple(sorted(gpus, key=lambda gpu: getattr(gpu, key)))
    return tuple(gpus)


def link_of(element: Element) -> PcieLink:
    """NCCL writes the lesser of what the device and the port above it can do; 0 or empty where it could not look."""
    speed = re.match(r"\d{1,3}(\.\d)?", element.get("link_speed"))
    generation = GENERATION.get(float(speed[0])) if speed else None
    width = _number(element.get("link_width"))
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
