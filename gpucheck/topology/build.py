"""The topology of a live host: NVML's view, checked against the bridge chains that sysfs shows."""

from collections.abc import Iterator
from itertools import combinations

from gpucheck.model.finding import Finding
from gpucheck.model.hardware import Gpu, Pair, PciDevice, TopologyGpu
from gpucheck.model.readings import NvmlReading
from gpucheck.model.topology import Topology
from gpucheck.model.verdict import Verdict
from gpucheck.topology.classify import classify
from gpucheck.topology.cpu import Cpu
from gpucheck.topology.expected import expected, narrowest
from gpucheck.topology.nics import network_cards
from gpucheck.topology.nvlink import Joint, ends_of, meet
from gpucheck.topology.reduced import reduced_findings
from gpucheck.topology.wiring import Paths, wire

CHECK = "topology"
DISTANCE = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5}


def build(
    reading: NvmlReading,
    pci: tuple[PciDevice, ...],
    simulated: bool,
    *,
    cpu: Cpu | None = None,
    virtual: str | None = None,
) -> Topology:
    """The matrix as nvidia-smi topo -m prints it, expectations by pair, and where two witnesses disagree.

    A cell is NV# where NVLinks join the pair, else NVML's common ancestor, else the class from sysfs, else None.
    pci: GPUs by bus id, any bridges on their way (their links narrow the expectation) and network cards.
    virtual: the hypervisor where there is one, whose PCI links are made up.
    """
    devices = {device.bus_id.lower(): device for device in pci}
    view = _View(reading, devices)
    count = len(reading.gpus)
    cells = {pair: view.cell(*pair) for pair in combinations(range(count), 2)}
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
        findings=(*_findings(view, cells), *reduced_findings(wiring, virtual)),
        wiring=wiring,
    )


def _pair(view: "_View", at: tuple[int, int], cls: str | None, paths: Paths, cpu: Cpu | None) -> Pair:
    one, other = view.gpus(*at)
    if cls not in DISTANCE:
        return Pair(a=one.index, b=other.index, cls=cls, expected=expected(cls, one, other, (), cpu))
    labels = f"GPU{one.index}", f"GPU{other.index}"
    hops = paths.between(*labels)
    return Pair(
        a=one.index,
        b=other.index,
        cls=cls,
        expected=None if view.refused(*at, cls) else expected(cls, one, other, hops, cpu),
        narrowest=narrowest(hops),
        reduced=paths.reduced(*labels),
    )


class _View:
    """What the witnesses say about a pair, by position in NVML's order."""

    def __init__(self, reading: NvmlReading, devices: dict[str, PciDevice]) -> None:
        self.reading = reading
        self.devices = devices
        self.ends = [ends_of(gpu) for gpu in reading.gpus]

    def gpus(self, i: int, j: int) -> tuple[Gpu, Gpu]:
        return self.reading.gpus[i], self.reading.gpus[j]

    def device(self, i: int) -> PciDevice | None:
        return self.devices.get(self.reading.gpus[i].pci_bus_id.lower())

    def ancestors(self, i: int, j: int) -> tuple[str | None, str | None]:
        return _at(self.reading.ancestors, i, j), _at(self.reading.ancestors, j, i)

    def ancestor(self, i: int, j: int) -> str | None:
        """NVML's class: the farther one where it says two, so that the matrix stays symmetric."""
        said = [cls for cls in self.ancestors(i, j) if cls is not None]
        return max(said, key=lambda cls: DISTANCE.get(cls, 0), default=None)

    def sysfs(self, i: int, j: int) -> str | None:
        a, b = self.device(i), self.device(j)
        return classify(a, b) if a and b else None

    def cell(self, i: int, j: int) -> str | None:
        links = self.joint(i, j).links
        return f"NV{links}" if links else self.ancestor(i, j) or self.sysfs(i, j)

    def joint(self, i: int, j: int) -> Joint:
        return meet(self.ends[i], self.ends[j])

    def p2p(self, i: int, j: int) -> str | None:
        """The first status that is not OK, reading and writing, both directions; None where nothing was told."""
        said = [_at(self.reading.p2p.get(what, ()), *at) for what in ("read", "write") for at in ((i, j), (j, i))]
        told = [status for status in said if status not in (None, "X")]
        return next((status for status in told if status != "OK"), "OK" if told else None)

    def refused(self, i: int, j: int, cls: str | None) -> bool:
        """A PCIe pair whose copies are staged through host memory: the path's rate says nothing about them."""
        return cls in DISTANCE and self.p2p(i, j) not in (None, "OK")


def _at(matrix: tuple[tuple[str | None, ...], ...], i: int, j: int) -> str | None:
    return matrix[i][j] if i < len(matrix) and j < len(matrix[i]) else None


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


def _findings(view: _View, cells: dict[tuple[int, int], str | None]) -> Iterator[Finding]:
    for pair, cls in cells.items():
        yield from _pair_findings(view, pair, cls)
    refused = [(pair, view.p2p(*pair)) for pair, cls in cells.items() if view.refused(*pair, cls)]
    if refused:
        words = dict.fromkeys(status for _, status in refused)
        yield Finding(
            check=CHECK,
            verdict=Verdict.SKIP,
            subject="host",
            seen=f"P2P status {', '.join(str(word) for word in words)} on {len(refused)} of {len(cells)} pairs",
            why="copies between these GPUs are staged through host memory, so no peer-to-peer bandwidth is expected",
            evidence=tuple(f"nvmlDeviceGetP2PStatus {_subject(view, *pair)}: {status}" for pair, status in refused),
        )


def _pair_findings(view: _View, pair: tuple[int, int], cls: str | None) -> Iterator[Finding]:
    subject, (nvml, back) = _subject(view, *pair), view.ancestors(*pair)
    sysfs, nvlinks = view.sysfs(*pair), view.joint(*pair)
    if cls is None:
        yield Finding(
            check=CHECK,
            verdict=Verdict.UNKNOWN,
            subject=subject,
            wanted="a path class",
            why="NVML did not answer for this pair, and sysfs shows neither a shared bridge nor NUMA nodes",
            fix="look at the gaps of the inventory check: gpucheck verify --only inventory --verbose",
        )
    if nvml and back and nvml != back:
        yield _disagree(subject, f"{nvml} one way, {back} the other", "one class", "NVML contradicts itself")
    elif nvml and sysfs and nvml != sysfs:
        yield _disagree(subject, f"NVML: {nvml}", f"sysfs: {sysfs}", "NVML and the bridge chain in sysfs differ")
    if not nvlinks.agreed:
        one, other = nvlinks.ends
        yield Finding(
            check=CHECK,
            verdict=Verdict.WARN,
            subject=subject,
            seen=min(one, other),
            wanted=max(one, other),
            unit="links",
            why="the two GPUs count different numbers of active NVLinks between them",
            fix="nvidia-smi nvlink -s; reseat the bridge or reset both GPUs",
            evidence=(f"one end: {one} links, other end: {other} links",),
        )


def _disagree(subject: str, seen: str, wanted: str, what: str) -> Finding:
    return Finding(
        check=CHECK,
        verdict=Verdict.WARN,
        subject=subject,
        seen=seen,
        wanted=wanted,
        why=f"{what}: a virtual machine's made-up PCI tree, or firmware that reports wrong NUMA nodes",
        fix="compare lspci -tv and /sys/bus/pci/devices/*/numa_node with nvidia-smi topo -m; trust measured bandwidth",
        evidence=("nvmlDeviceGetTopologyCommonAncestor", "/sys/bus/pci/devices"),
    )


def _subject(view: _View, i: int, j: int) -> str:
    a, b = view.gpus(i, j)
    return f"pair:{a.pci_bus_id}-{b.pci_bus_id}"
