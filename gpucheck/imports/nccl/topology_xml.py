"""NCCL's topology XML: what NCCL_TOPO_DUMP_FILE writes, and what cloud vendors publish for NCCL_TOPO_FILE.

Elements as NVIDIA/nccl src/graph/xml.cc reads and writes them. A ``cpu`` is a NUMA node; a ``pci`` with children is a
PCIe switch, named by its upstream port; host bridges and root ports are not written. So two devices of one NUMA node
with no switch in common may share a host bridge (PHB) or not (NODE): they are counted as NODE, the farther one.

Only a dump of NCCL itself has ``gpu`` elements, and NVLinks in them. The files of vendors (aws-ofi-nccl, azhpc-images)
have none: NCCL adds the NVLinks that NVML reports on the machine.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

from gpucheck.imports._blocks import until
from gpucheck.imports._kind import TOPOLOGY, Kind
from gpucheck.imports._problem import ImportProblem, absent
from gpucheck.imports._regex import regex
from gpucheck.imports._text import quoted
from gpucheck.imports._topology import of_topology
from gpucheck.imports.nccl._topology_tree import Leaf, System, read_system
from gpucheck.imports.nccl._topology_tree import parse as parse_xml
from gpucheck.knowledge.codes import Subject
from gpucheck.model.finding import Finding
from gpucheck.model.host.hardware import NVSWITCH, Nic, NvLinkBundle, Pair, TopologyGpu, WiredFunction, Wiring
from gpucheck.model.paste import Part
from gpucheck.model.topology import Topology

NAME = "nccl-topology"
SOURCE = "nccl-xml"
TITLE = "NCCL topology XML"
SUBJECT = Subject(check="topology")
BEGIN = regex(r"<\?xml|<!DOCTYPE|<system\b")
SHAPE = regex(r"<system\b[^<>]{0,200}>\s*(?:<!--|<cpu\b|<pci\b|<gpu\b|<nic\b|</system|\Z)|<system\s+version\s*=")
BEGIN_OF_ANY = regex(rf"{BEGIN.pattern}|<graphs\s+version")


def parse(lines: list[str]) -> Part:
    """The topology in the text. Raises ImportProblem, and nothing else."""
    return of_topology(topology(lines))


def topology(lines: list[str]) -> Topology:
    """Return the GPUs in NVML's order if the dump has it (``dev``), else by rank, else by place in the file.

    Raises ImportProblem, and nothing else.
    """
    text = "\n".join(lines)
    begin, end = BEGIN.search(text), text.rfind("</system>")
    if begin is None or not SHAPE.search(text):
        raise absent(
            f"{TITLE}",
            "this is a graph dump of NCCL (NCCL_GRAPH_DUMP_FILE), which holds rings and trees, not the machine",
            "Dump the topology instead: NCCL_TOPO_DUMP_FILE=topo.xml",
        )
    first_line = text.count("\n", 0, begin.start()) + 1
    cut = text[begin.start() : end + len("</system>") if end > begin.start() else len(text)]
    root = parse_xml(cut, TITLE, first_line)
    if root.tag != "system":
        raise ImportProblem(
            f"no {TITLE} in the input",
            where=f"line {root.line}",
            why=f"the outermost element is {quoted(root.tag)}, not system",
            do="Import the file as NCCL wrote it: NCCL_TOPO_DUMP_FILE=topo.xml",
        )
    system = read_system(root)
    if not system.gpus:
        raise ImportProblem(
            f"no GPU in this {TITLE}",
            where=f"line {root.line}",
            why="it has neither a gpu element nor a pci element of class 0x0302",
            do="Dump it on a machine with GPUs, from a program that uses them: NCCL_TOPO_DUMP_FILE=topo.xml",
        )
    return _topology(system)


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
        findings=tuple(_findings(system)),
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
        nvlinks_known=_lists_nvlinks(system),
    )


def _lists_nvlinks(system: System) -> bool:
    return any(gpu.nvlinks for gpu in system.gpus)


def _bundles(gpus: tuple[Leaf, ...]) -> Iterator[NvLinkBundle]:
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
    if not _lists_nvlinks(system):
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
    """From the declaration or the outermost element to its end, or to the end of the text."""
    return until(lines, lambda line: "<" in line and BEGIN_OF_ANY.search(line), "</system>", "</graphs>")


KIND = Kind(NAME, TITLE, parse, holds=TOPOLOGY, hints=("<system", "<graphs"), blocks=_blocks)
