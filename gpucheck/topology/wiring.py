"""The wiring of a host from its PCI functions, and the links that a transfer between two functions uses.

A wiring that is inferred from path classes has no bus ids and no PCIe links: devices of class PIX share a box, and
every NUMA node has one.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import Literal, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from gpucheck.knowledge import find_gpu, gpu_by_pci_id
from gpucheck.model.host.hardware import Gpu, NvLink, PciDevice, PcieLink
from gpucheck.model.host.readings import NvmlReading
from gpucheck.model.host.wiring import NVSWITCH, Nic, NumaNode, NvLinkBundle, WiredFunction, Wiring
from gpucheck.model.topology import Topology
from gpucheck.topology.expected import Hop
from gpucheck.topology.pcie import classify


class Joint(NamedTuple):
    """links: what both ends agree on. ends: what each end reports by itself."""

    links: int
    ends: tuple[int, int]


class Ends(NamedTuple):
    """The active links of one GPU, counted once so that many pairs can ask.

    direct: by the peer's bus id. switches: by the bus id of an NVSwitch, or NVSWITCH for one without.
    hidden: links to something that this host cannot see, and that NVML does not call a GPU; unnamed: links without a
    bus id.
    """

    bus_id: str
    direct: Counter[str]
    switches: Counter[str]
    hidden: int
    unnamed: int


class NvLinks:
    """The NVLinks between the GPUs of one host, by place in NVML's order.

    pci: the functions that the host can see. A link to a GPU among them that NVML does not list (lost, or not part of
    the container) joins nothing. A link to what the host cannot see leads to an NVSwitch, as in a virtual machine
    without the switches, and as NCCL assumes; not so on a GPU with direct links, for no board has both.
    """

    def __init__(self, gpus: Sequence[Gpu], pci: Iterable[PciDevice] = ()) -> None:
        own = {gpu.pci_bus_id.lower() for gpu in gpus}
        others = {device.bus_id.lower() for device in pci if not device.is_nvswitch} - own
        self.ends = [_ends(gpu, own, others) for gpu in gpus]
        named = {peer for ends in self.ends for peer in ends.direct}
        self.meshed = [bool(ends.direct) or ends.bus_id in named for ends in self.ends]

    def switches(self, i: int) -> Counter[str]:
        """Return the links of a GPU that lead to NVSwitches, by the switch."""
        ends = self.ends[i]
        return ends.switches + Counter({NVSWITCH: 0 if self.meshed[i] else ends.hidden})  # + drops zeros

    def between(self, i: int, j: int) -> Joint:
        """Return the NVLinks between two GPUs; zero links if there are none.

        Direct links win over a switch. An end that hides its peers (no remote id, as in some virtual machines) is
        counted with its unnamed active links. Through NVSwitch every port reaches every GPU, so the GPU with
        fewer active switch links sets the count: that pair has no reason to have equal ends.
        """
        a, b = self.ends[i], self.ends[j]
        ends = a.direct[b.bus_id], b.direct[a.bus_id]
        if any(ends):
            links = min(max(ends), ends[0] + a.unnamed, ends[1] + b.unnamed)
            return Joint(links, (max(ends[0], links), max(ends[1], links)))
        through = min(self.switches(i).total(), self.switches(j).total())
        return Joint(through, (through, through))


def _ends(gpu: Gpu, own: set[str], others: set[str]) -> Ends:
    direct: Counter[str] = Counter()
    switches: Counter[str] = Counter()
    hidden = unnamed = 0
    for link in gpu.nvlinks:
        end = _far_end(link, own, others) if link.active else None
        if end is None:
            continue
        if link.remote_kind == "switch":
            switches[end] += 1
        elif end == NVSWITCH:
            unnamed += link.remote_bus_id is None
            hidden += link.remote_bus_id is not None or link.remote_kind != "gpu"
        else:
            direct[end] += 1
    return Ends(gpu.pci_bus_id.lower(), direct, switches, hidden, unnamed)


def _far_end(link: NvLink, own: set[str], others: set[str]) -> str | None:
    """Return the bus id of a GPU of this host or of a switch, NVSWITCH for what cannot be seen, None for the rest."""
    bus_id = (link.remote_bus_id or "").lower()
    if link.remote_kind == "switch":
        return bus_id or NVSWITCH
    if bus_id in own:
        return bus_id
    return None if link.remote_kind == "npu" or bus_id in others else NVSWITCH


STATE_CALL = "nvmlDeviceGetNvLinkState"
PAST = (2, 3)  # NVML: invalid argument, not supported: there is no such link
PARAMS = "/proc/driver/nvidia/params"
FAR_END = ("nvmlDeviceGetNvLinkRemotePciInfo", "nvmlDeviceGetNvLinkRemoteDeviceType")
DISTANCE = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5}


def nvlink_limit(params: str | None) -> int | None:
    """Return how many NVLinks of a GPU the options of the driver allow, None for all. params: text of PARAMS."""
    options = dict(re.findall(r"^(\w+): *(\d+)$", params or "", re.MULTILINE))
    if int(options.get("NvLinkDisable", 0)):
        return 0
    return int(options.get("RmNvlinkBandwidthLinkCount", 0)) or None


class Problem(NamedTuple):
    """A code about pairs, with the two readings that it compares, or the call and its return code."""

    code: str
    one: str = ""
    other: str = ""


class View:
    """Both sources. Matrices are read by place, never by NVML's index: a GPU that NVML lost leaves a gap there."""

    def __init__(self, reading: NvmlReading, devices: dict[str, PciDevice]) -> None:
        self.reading = reading
        self.devices = devices
        self.nvlinks = NvLinks(reading.gpus, devices.values())
        self._unknown = [self._why_unknown(gpu) for gpu in reading.gpus]
        self.pairs = tuple(combinations(range(len(reading.gpus)), 2))

    def gpus(self, i: int, j: int) -> tuple[Gpu, Gpu]:
        return self.reading.gpus[i], self.reading.gpus[j]

    def subject(self, i: int, j: int) -> str:
        a, b = self.gpus(i, j)
        return f"pair:{a.pci_bus_id}-{b.pci_bus_id}"

    def device(self, i: int) -> PciDevice | None:
        return self.devices.get(self.reading.gpus[i].pci_bus_id.lower())

    def ancestors(self, i: int, j: int) -> tuple[str | None, str | None]:
        return at(self.reading.ancestors, i, j), at(self.reading.ancestors, j, i)

    def ancestor(self, i: int, j: int) -> str | None:
        """Return NVML's class: the farther one where it reports two, so that the matrix stays symmetric."""
        reported = [cls for cls in self.ancestors(i, j) if cls is not None]
        return max(reported, key=lambda cls: DISTANCE.get(cls, 0), default=None)

    def sysfs(self, i: int, j: int) -> str | None:
        a, b = self.device(i), self.device(j)
        return classify(a, b) if a and b else None

    def cell(self, i: int, j: int) -> str | None:
        links = self.joint(i, j).links
        return f"NV{links}" if links else self.ancestor(i, j) or self.sysfs(i, j)

    def joint(self, i: int, j: int) -> Joint:
        return self.nvlinks.between(i, j)

    def unknown_links(self, i: int, j: int) -> Problem | None:
        """Return why the links of a GPU of the pair are not known in full, if it may have any."""
        return self._unknown[i] or self._unknown[j]

    def _why_unknown(self, gpu: Gpu) -> Problem | None:
        model = gpu_by_pci_id(gpu.device_id) or find_gpu(gpu.name)
        if model is not None and model.nvlink is None:
            return None
        start = f"link:{gpu.pci_bus_id}/"
        own = [gap for gap in self.reading.gaps if gap.subject.startswith(start)]
        nameless = [
            link for link in gpu.nvlinks if link.active and link.remote_bus_id is None and link.remote_kind != "switch"
        ]
        names = {f"{start}{link.link}" for link in nameless}
        refused = [gap for gap in own if gap.call == STATE_CALL and gap.code not in PAST]
        # Not supported, not in this library: what a guest gets whose switches are hidden from it.
        refused += [gap for gap in own if gap.call in FAR_END and not gap.absent and gap.subject in names]
        if refused:
            return Problem("topology.link-call-failed", refused[0].call, str(refused[0].code))
        if any(link.remote_kind == "gpu" for link in nameless):
            absent = any(gap.call in FAR_END and gap.subject in names for gap in own)
            return Problem("topology.far-end-not-offered" if absent else "topology.far-end-not-reported")
        return None

    def p2p(self, i: int, j: int) -> str | None:
        return p2p_status(self.reading, (i, j))

    def refused(self, i: int, j: int, cls: str | None) -> bool:
        """Whether copies of a PCIe pair are staged through host memory: the path's rate does not apply to them."""
        return cls in DISTANCE and self.p2p(i, j) not in (None, "OK")

    def compared(self) -> int:
        return sum(self.ancestor(*pair) is not None and self.sysfs(*pair) is not None for pair in self.pairs)


def at(matrix: Sequence[Sequence[str | None]], i: int, j: int) -> str | None:
    """Return a cell; None where a matrix of another size has none."""
    return matrix[i][j] if i < len(matrix) and j < len(matrix[i]) else None


def p2p_status(nvml: NvmlReading, pair: tuple[int, int], kinds: Sequence[str] = ("read", "write")) -> str | None:
    """Return the first status that is not OK, both ways, by place in NVML's order; OK only when all of them are.

    None where a direction was not reported: that one direction works proves nothing of the other.
    """
    reported = [at(nvml.p2p[kind], *way) for kind in kinds if kind in nvml.p2p for way in (pair, pair[::-1])]
    bad = next((status for status in reported if status not in ("OK", None)), None)
    return bad or (None if not reported or None in reported else "OK")


Member = TypeVar("Member", bound=Hashable)


def islands(members: Iterable[Member], joined: Iterable[tuple[Member, Member]]) -> list[frozenset[Member]]:
    group = {member: frozenset([member]) for member in members}
    for one, other in joined:
        whole = group[one] | group[other]
        group.update(dict.fromkeys(whole, whole))
    return list(dict.fromkeys(group.values()))


BridgeKind = Literal["root-port", "switch-upstream", "switch-downstream", "bridge"]
PORTS: tuple[BridgeKind, BridgeKind] = ("switch-downstream", "switch-upstream")


def wire(gpus: tuple[Gpu, ...], nics: tuple[Nic, ...], devices: dict[str, PciDevice], cpu: str | None) -> Wiring:
    """devices: every known PCI function by bus id; a bridge that is not among them is drawn without its link."""
    leaves = [_gpu(gpu, devices) for gpu in gpus]
    cards: dict[str, WiredFunction] = {}
    for nic in nics:
        if nic.pci_bus_id and nic.pci_bus_id not in cards:
            cards[nic.pci_bus_id] = _leaf(nic.label, "nic", nic.pci_bus_id, devices)
    leaves += cards.values()
    return Wiring(
        nodes=tuple(_nodes(gpus, leaves, cpu)),
        functions=(*_bridges(leaves, devices), *leaves),
        nvlinks=tuple(_bundles(gpus, NvLinks(gpus, devices.values()))),
    )


def gpu_link(gpu: Gpu, devices: dict[str, PciDevice]) -> PcieLink:
    """Return the link by NVML (device and slot together), by sysfs where NVML reports nothing."""
    device = devices.get(gpu.pci_bus_id.lower())
    link = device.link if device else PcieLink()
    return PcieLink(
        generation=gpu.pcie.generation or link.generation,
        width=gpu.pcie.width or link.width,
        max_generation=gpu.pcie.max_generation or link.max_generation,
        max_width=gpu.pcie.max_width or link.max_width,
    )


def _gpu(gpu: Gpu, devices: dict[str, PciDevice]) -> WiredFunction:
    leaf = _leaf(f"GPU{gpu.index}", "gpu", gpu.pci_bus_id, devices)
    node = gpu.numa_node if gpu.numa_node is not None else leaf.numa_node
    return replace(leaf, numa_node=node, link=gpu_link(gpu, devices))


def _leaf(label: str, kind: Literal["gpu", "nic"], bus_id: str, devices: dict[str, PciDevice]) -> WiredFunction:
    device = devices.get(bus_id.lower())
    return WiredFunction(
        bus_id=bus_id,
        kind=kind,
        label=label,
        above=device.path[-1] if device and device.path else None,
        root=device.root if device else "",
        numa_node=device.numa_node if device else None,
        link=device.link if device else PcieLink(),
    )


def _bridges(leaves: list[WiredFunction], devices: dict[str, PciDevice]) -> Iterator[WiredFunction]:
    seen: set[str] = set()
    for leaf in leaves:
        device = devices.get(leaf.bus_id.lower())
        for depth, bus_id in enumerate(device.path if device else ()):
            if device is None or bus_id in seen:
                continue
            seen.add(bus_id)
            bridge = devices.get(bus_id)
            # Below the root port a chain alternates: into a switch, out of it.
            kind: BridgeKind = "root-port" if depth == 0 else PORTS[depth % 2]
            reported = bridge.kind if bridge and bridge.kind not in (None, "bridge") else None
            yield WiredFunction(
                bus_id=bus_id,
                kind=reported or kind,
                above=device.path[depth - 1] if depth else None,
                root=device.root,
                numa_node=bridge.numa_node if bridge and bridge.numa_node is not None else leaf.numa_node,
                link=bridge.link if bridge else PcieLink(),
            )


def _nodes(gpus: tuple[Gpu, ...], leaves: list[WiredFunction], cpu: str | None) -> Iterator[NumaNode]:
    cpus: dict[int | None, str | None] = {}
    for gpu, leaf in zip(gpus, leaves, strict=False):
        cpus[leaf.numa_node] = cpus.get(leaf.numa_node) or gpu.cpu_affinity
    for leaf in leaves:
        cpus.setdefault(leaf.numa_node, None)
    for node in sorted(cpus, key=lambda node: (node is None, node or 0)):
        yield NumaNode(index=node, cpus=cpus[node], vendor=cpu)


def _bundles(gpus: tuple[Gpu, ...], links: NvLinks) -> Iterator[NvLinkBundle]:
    """Direct links once for both ends; links to switches once for each GPU and switch."""
    for n, gpu in enumerate(gpus):
        yield from (NvLinkBundle(a=f"GPU{gpu.index}", b=end, links=count) for end, count in links.switches(n).items())
    for i, j in combinations(range(len(gpus)), 2):
        direct = max(links.ends[i].direct[links.ends[j].bus_id], links.ends[j].direct[links.ends[i].bus_id])
        if direct:
            yield NvLinkBundle(a=f"GPU{gpus[i].index}", b=f"GPU{gpus[j].index}", links=direct)


class Paths:
    """Which PCIe links lie between two functions of a wiring, by label."""

    def __init__(self, wiring: Wiring) -> None:
        self.functions = {function.bus_id: function for function in wiring.functions}
        self.chains = {f.label: tuple(self._chain(f)) for f in wiring.functions if f.label}

    def _chain(self, function: WiredFunction) -> Iterable[WiredFunction]:
        up = [function]
        while (above := self.functions.get(up[-1].above or "")) is not None and above not in up:
            up.append(above)
        return reversed(up)

    def between(self, a: str, b: str) -> tuple[Hop, ...]:
        """Every link that could be read on the way; the functions' own even where it could not. Both labels must be
        known, else nothing is."""
        one, other = self.chains.get(a, ()), self.chains.get(b, ())
        if not one or not other:
            return ()
        shared = 0
        while shared < min(len(one), len(other)) and one[shared] is other[shared]:
            shared += 1
        own = (one[-1], other[-1])
        bridges = (*one[shared:-1], *other[shared:-1])
        return tuple(Hop(f.bus_id, f.link) for f in own) + tuple(
            Hop(f.bus_id, f.link) for f in bridges if f.link.max_generation and f.link.max_width
        )

    def reduced(self, a: str, b: str) -> tuple[str, ...]:
        ids = {hop.bus_id for hop in self.between(a, b)}
        return tuple(bus_id for bus_id in sorted(ids) if is_reduced(self.functions[bus_id]))


def is_reduced(function: WiredFunction) -> bool:
    """Fewer lanes than both ends have. Of a switch a lower generation too: only a device's own link sleeps.

    A port has the same link as the function below it, which is the one to name.
    """
    if function.kind not in ("gpu", "nic", "switch-upstream"):
        return False
    return function.link.is_narrow or (function.link.is_slow and function.kind == "switch-upstream")


MOST_SWITCH_MEMBERS = 5  # fully and evenly joined by direct links, up to here: 12 links over 3 peers, 18 over 3


def infer_wiring(topology: Topology) -> Topology:
    """Return the topology with an inferred wiring, unless its source reported one."""
    return topology if topology.wiring is not None else msgspec.structs.replace(topology, wiring=_inferred(topology))


def _inferred(topology: Topology) -> Wiring:
    numa = {f"GPU{gpu.index}": gpu.numa_node for gpu in topology.gpus}
    cpus = {gpu.numa_node: gpu.cpu_affinity for gpu in reversed(topology.gpus)}
    for nic in topology.nics:
        near = [gpu.numa_node for gpu, cls in zip(topology.gpus, nic.classes, strict=True) if cls not in (None, "SYS")]
        numa[nic.label] = near[0] if near and len(set(near)) == 1 else None
    nodes = sorted(set(numa.values()), key=lambda node: (node is None, node or 0))
    switches = _switches(topology)
    above = {label: f"switch{n}" for n, switch in enumerate(switches) for label in switch}
    functions = [
        WiredFunction(bus_id=f"switch{n}", kind="switch-upstream", numa_node=numa[switch[0]])
        for n, switch in enumerate(switches)
    ]
    functions += [
        WiredFunction(
            bus_id=label,
            kind="gpu" if i < len(topology.gpus) else "nic",
            label=label,
            above=above.get(label),
            numa_node=numa[switches[int(above[label][6:])][0]] if label in above else node,
        )
        for i, (label, node) in enumerate(numa.items())
    ]
    return Wiring(
        nodes=tuple(NumaNode(index=node, cpus=cpus.get(node)) for node in nodes),
        functions=tuple(functions),
        nvlinks=tuple(_nvlinks(topology)),
        told=False,
    )


def _switches(topology: Topology) -> list[list[str]]:
    labels = [f"GPU{gpu.index}" for gpu in topology.gpus]
    members = [*labels, *(nic.label for nic in topology.nics)]
    near = [(labels[i], labels[j]) for i, j in combinations(range(len(labels)), 2) if topology.matrix[i][j] == "PIX"]
    near += [(labels[i], nic.label) for nic in topology.nics for i, cls in enumerate(nic.classes) if cls == "PIX"]
    return [sorted(group, key=members.index) for group in islands(members, near) if len(group) > 1]


def nvlinks_of(cls: str | None) -> int:
    return int(cls[2:]) if cls and cls.startswith("NV") else 0


def _nvlinks(topology: Topology) -> Iterator[NvLinkBundle]:
    """Yield links to switches if more GPUs than a board can mesh are all joined equally; else direct links."""
    joined = [pair for pair in topology.pairs if nvlinks_of(pair.cls)]
    counts = {pair.cls for pair in joined}
    if len(topology.gpus) > MOST_SWITCH_MEMBERS and len(joined) == len(topology.pairs) and len(counts) == 1:
        for gpu in topology.gpus:
            yield NvLinkBundle(a=f"GPU{gpu.index}", b=NVSWITCH, links=nvlinks_of(joined[0].cls))
        return
    for pair in joined:
        yield NvLinkBundle(a=f"GPU{pair.a}", b=f"GPU{pair.b}", links=nvlinks_of(pair.cls))
