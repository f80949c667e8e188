"""The topology of a host: NVML's view, compared with the bridge chains in sysfs."""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from gpucheck.knowledge.codes import Subject
from gpucheck.model.facts import Source
from gpucheck.model.finding import Finding
from gpucheck.model.host import NotRecorded
from gpucheck.model.host.hardware import Gpu, PciDevice
from gpucheck.model.host.readings import NvmlFailure, NvmlReading
from gpucheck.model.host.wiring import Nic, Pair, TopologyGpu, Wiring
from gpucheck.model.topology import Topology
from gpucheck.topology.expected import Named, expected, narrowest
from gpucheck.topology.nics import SLINGSHOT
from gpucheck.topology.pcie import VENDORS, classify, cpu_vendor
from gpucheck.topology.wiring import DISTANCE, Paths, Problem, View, wire

CPUINFO = "/proc/cpuinfo"


def of(source: Source) -> Topology | None:
    """Return the topology of a host from all that is known of it, None if NVML cannot be read.

    Raises what the read of NVML or the PCI functions ended with.
    """
    reading = source.read("nvml").nvml
    if isinstance(reading, NvmlFailure):
        return None
    facts = source.read("pci", "simulation")
    return build(reading, facts.pci, facts.simulation is not None, cpu=cpu_of(source))


def cpu_of(source: Source) -> str | None:
    """Return the vendor of a host's CPU, None if it is unknown or an older recording lacks it."""
    try:
        return cpu_vendor(source.read(f"text:{CPUINFO}").texts[CPUINFO])
    except NotRecorded:
        return None


def build(reading: NvmlReading, pci: tuple[PciDevice, ...], simulated: bool, *, cpu: str | None = None) -> Topology:
    """Return the matrix as nvidia-smi topo -m prints it, expectations by pair, and where the sources differ.

    A cell is NV# where NVLinks join the pair, else NVML's common ancestor, else the class from sysfs, else None.
    pci: GPUs by bus id, any bridges on their way (their links narrow the expectation) and network cards.
    """
    devices = {device.bus_id.lower(): device for device in pci}
    view = View(reading, devices)
    count = len(reading.gpus)
    cells = {pair: view.cell(*pair) for pair in view.pairs}
    matrix = tuple(tuple("X" if i == j else cells[min(i, j), max(i, j)] for j in range(count)) for i in range(count))
    nics = network_cards(reading.gpus, devices)
    wiring = wire(reading.gpus, nics, devices, cpu)
    paths = Paths(wiring)
    return Topology(
        simulated=simulated,
        source="nvml",
        gpus=tuple(_named(gpu, devices) for gpu in reading.gpus),
        matrix=matrix,
        nics=nics,
        pairs=tuple(_pair(view, pair, cls, paths, cpu) for pair, cls in cells.items()),
        findings=tuple(pair_findings(view)),
        wiring=wiring,
    )


def _pair(view: View, at: tuple[int, int], cls: str | None, paths: Paths, cpu: str | None) -> Pair:
    one, other = view.gpus(*at)
    pair = _expect(Pair(a=one.index, b=other.index, cls=cls), one, other, paths, cpu)
    if cls not in DISTANCE:
        return pair
    reduced = paths.reduced(f"GPU{one.index}", f"GPU{other.index}")
    return replace(pair, expected=None if view.refused(*at, cls) else pair.expected, reduced=reduced)


def _expect(pair: Pair, one: Named, other: Named, paths: Paths | None, cpu: str | None) -> Pair:
    """paths: None where the links are not known."""
    if pair.cls not in DISTANCE:
        return replace(pair, expected=expected(pair.cls, one, other, (), cpu))
    hops = paths.between(f"GPU{pair.a}", f"GPU{pair.b}") if paths else ()
    return replace(pair, expected=expected(pair.cls, one, other, hops, cpu), narrowest=narrowest(hops))


def _named(gpu: Gpu, devices: dict[str, PciDevice]) -> TopologyGpu:
    device = devices.get(gpu.pci_bus_id.lower())
    numa = gpu.numa_node if gpu.numa_node is not None else device.numa_node if device else None
    return TopologyGpu(
        index=gpu.index,
        name=gpu.name,
        uuid=gpu.uuid,
        pci_bus_id=gpu.pci_bus_id,
        compute_capability=gpu.compute_capability,
        numa_node=numa,
        cpu_affinity=gpu.cpu_affinity,
        numa_affinity=None if numa is None else str(numa),
    )


MELLANOX = "15b3"


def network_cards(gpus: tuple[Gpu, ...], devices: dict[str, PciDevice]) -> tuple[Nic, ...]:
    """NIC0, NIC1, ... in the order of their names: one for each RDMA device.

    A Mellanox function counts without one too: a container may hide /sys/class/infiniband. So does Slingshot, which has
    none. Then its network interface names it, or its bus id.
    """
    cards = [
        (name, device)
        for device in devices.values()
        if device.is_network_card
        and (
            device.infiniband_names or device.vendor_id == MELLANOX or (device.vendor_id, device.device_id) in SLINGSHOT
        )
        for name in device.infiniband_names or device.net_names[:1] or (device.bus_id,)
    ]
    cards.sort(key=lambda card: (_natural(card[0]), card[1].bus_id))
    near = [devices.get(gpu.pci_bus_id.lower()) for gpu in gpus]
    return tuple(
        Nic(
            label=f"NIC{i}",
            name=name,
            classes=tuple(classify(gpu, card) if gpu else None for gpu in near),
            peers=tuple("X" if i == j else _between(card, other) for j, (_, other) in enumerate(cards)),
            pci_bus_id=card.bus_id,
            numa_node=card.numa_node,
        )
        for i, (name, card) in enumerate(cards)
    )


def _between(a: PciDevice, b: PciDevice) -> str | None:
    cls = classify(a, b)
    return "PIX" if cls == "X" else cls


def _natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """mlx5_10 after mlx5_9."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts)


CHECK = "topology"
SHOWN = 12
Pairs = Sequence[tuple[int, int]]


def pair_findings(view: View) -> Iterator[Finding]:
    groups: dict[Problem, list[tuple[int, int]]] = {}
    for pair in view.pairs:
        for problem in _problems(view, pair):
            groups.setdefault(problem, []).append(pair)
    for problem, pairs in groups.items():
        yield _finding(view, problem, pairs)
    yield from _staged(view)


def _problems(view: View, pair: tuple[int, int]) -> Iterator[Problem]:
    (nvml, back), sysfs = view.ancestors(*pair), view.sysfs(*pair)
    if view.cell(*pair) is None:
        yield Problem("topology.path-class-unknown")
    if nvml and back and nvml != back:
        yield Problem("topology.directions-differ", nvml, back)
    elif nvml and sysfs and nvml != sysfs:
        yield Problem("topology.sources-differ", nvml, sysfs)
    unknown = view.unknown_links(*pair)
    if unknown is not None:
        yield unknown
        return
    ends = view.joint(*pair).ends
    if ends[0] != ends[1]:
        yield Problem("topology.nvlink-counts-differ", str(min(ends)), str(max(ends)))


# By code: what is seen, and what is wanted instead.
DIFFERING = {
    "topology.directions-differ": ("NVML reports {} one way and {} the other", "one class"),
    "topology.sources-differ": ("NVML reports {}, the bridge chain in sysfs is {}", "one class"),
    "topology.nvlink-counts-differ": ("{} NVLinks at one end, {} at the other", "the same number"),
}


def _finding(view: View, problem: Problem, pairs: Pairs) -> Finding:
    code, one, other = problem
    subject, count = _subject(view, pairs), len(pairs)
    if code in DIFFERING:
        seen, wanted = DIFFERING[code]
        state = seen.format(one, other) + (f" for {count} pairs" if count > 1 else "")
        return subject.warns(code, state, wanted, one=one, other=other)
    if code == "topology.far-end-not-offered":
        return subject.skips(code, pairs=count)
    if code == "topology.link-call-failed":
        return subject.unknown(code, because_of="nvlink", pairs=count, call=one, return_code=other)
    return subject.unknown(code, because_of="nvlink" if code == "topology.far-end-not-reported" else None, pairs=count)


def _staged(view: View) -> Iterator[Finding]:
    staged = [pair for pair in view.pairs if view.refused(*pair, view.cell(*pair))]
    if staged:
        status = ", ".join(dict.fromkeys(str(view.p2p(*pair)) for pair in staged))
        seen = f"P2P status {status} on {len(staged)} of {len(view.pairs)} pairs"
        yield _subject(view, staged, name="host").skips("topology.copies-staged", seen)


def _subject(view: View, pairs: Pairs, *, name: str | None = None) -> Subject:
    names = [view.subject(*pair) for pair in pairs]
    lines = [
        f"{name}: NVML {view.ancestor(*pair) or 'not reported'}, sysfs {view.sysfs(*pair) or 'not visible'}, "
        f"NVLinks {'/'.join(map(str, view.joint(*pair).ends))}, P2P {view.p2p(*pair) or 'not reported'}"
        for name, pair in zip(names[:SHOWN], pairs[:SHOWN], strict=True)
    ]
    more = [f"and {len(names) - SHOWN} more pairs"] if len(names) > SHOWN else []
    return Subject(check=CHECK, name=name or (names[0] if len(names) == 1 else "host"), evidence=(*lines, *more))


def with_expectations(topology: Topology) -> Topology:
    """Return the topology with expected bandwidth: NVLink by GPU model, PCIe by the reported links.

    A SKIP finding gives the reason for pairs without an expectation.
    """
    gpus, cpu = {gpu.index: gpu for gpu in topology.gpus}, _cpu(topology.wiring)
    wiring = topology.wiring if topology.wiring is not None and topology.wiring.told else None
    paths = Paths(wiring) if wiring is not None and wiring.nvlinks_known else None
    pairs = tuple(_expect(pair, gpus[pair.a], gpus[pair.b], paths, cpu) for pair in topology.pairs)
    without = sum(pair.expected is None for pair in pairs)
    if not without:
        return replace(topology, pairs=pairs)
    code = "topology.matrix-without-speeds"
    if wiring is not None:
        code = "topology.dump-without-links" if wiring.nvlinks_known else "topology.dump-without-nvlinks"
    reason = Subject(check=CHECK).skips(code, f"{without} of {len(pairs)} pairs without an expected bandwidth")
    return replace(topology, pairs=pairs, findings=(*topology.findings, reason))


def _cpu(wiring: Wiring | None) -> str | None:
    nodes = wiring.nodes if wiring else ()
    kinds = {VENDORS.get(node.vendor, node.vendor) if node.vendor else None for node in nodes}
    return kinds.pop() if len(kinds) == 1 else None
