"""Plan the steps of a run: their order, simultaneous copies and expected duration. Pure functions."""

from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations, permutations
from typing import Literal

import msgspec
from msgspec.structs import replace

from gpucheck.measure.values import KIB, LATENCY_REPEATS, MIB, SAMPLE_S, WARM_UP_S, CopyStep, Region
from gpucheck.model.copies import HOST, Flow, Method
from gpucheck.model.device import Device
from gpucheck.model.host.hardware import Gpu, PciDevice
from gpucheck.model.host.wiring import Expected
from gpucheck.model.topology import Topology
from gpucheck.topology.pcie import shared_bridges


class Path(msgspec.Struct, frozen=True, kw_only=True):
    """The path from one GPU to another. cls: the path class. resources: its links, each with its direction."""

    cls: str | None
    resources: tuple[str, ...]
    expected: Expected | None = None


def paths(gpus: Sequence[Gpu], pci: Sequence[PciDevice], topology: Topology) -> dict[tuple[int, int], Path]:
    """Return the path of every ordered pair, by position in ``gpus``."""
    devices = {device.bus_id.lower(): device for device in pci}
    known = {frozenset((pair.a, pair.b)): pair for pair in topology.pairs}
    answer = {}
    for i, j in combinations(range(len(gpus)), 2):
        pair = known.get(frozenset((gpus[i].index, gpus[j].index)))
        cls, expected = (pair.cls, pair.expected) if pair else (None, None)
        for a, b in ((i, j), (j, i)):
            ends = devices.get(gpus[a].pci_bus_id.lower()), devices.get(gpus[b].pci_bus_id.lower())
            answer[a, b] = Path(cls=cls, resources=_between(cls, a, b, *ends), expected=expected)
    return answer


def flow_resources(flow: Flow, between: dict[tuple[int, int], Path], to_host: Sequence[tuple[str, ...]]) -> set[str]:
    """Return the resources of a flow. to_host: links of each device up to its root, without direction.

    A GPU has copy engines for one copy out and one in at the same time, so the engines are resources too.
    """
    taken = set()
    if flow.src != HOST:
        taken.add(f"out:{flow.src}")
    if flow.dst != HOST:
        taken.add(f"in:{flow.dst}")
    if flow.src == flow.dst:
        return taken
    if HOST in (flow.src, flow.dst) or flow.method == "staged":
        taken |= {f"up:{link}" for link in (to_host[flow.src] if flow.src != HOST else ())}
        taken |= {f"down:{link}" for link in (to_host[flow.dst] if flow.dst != HOST else ())}
        return taken
    return taken | set(between[flow.src, flow.dst].resources if (flow.src, flow.dst) in between else ())


def ports_to_host(gpus: Sequence[Gpu], pci: Sequence[PciDevice]) -> tuple[tuple[str, ...], ...]:
    """Return for each GPU the bus ids of the links from the root port to the GPU."""
    devices = {device.bus_id.lower(): device for device in pci}
    return tuple((*device.path, device.bus_id) if (device := devices.get(g.pci_bus_id.lower())) else () for g in gpus)


def _between(cls: str | None, i: int, j: int, a: PciDevice | None, b: PciDevice | None) -> tuple[str, ...]:
    if cls is not None and cls.startswith("NV"):
        return (f"nvlink:{i}>{j}",)
    if a is None or b is None:
        return ()
    shared = shared_bridges(a, b)
    links = [f"up:{port}" for port in (*a.path[shared:], a.bus_id)]
    links += [f"down:{port}" for port in (*b.path[shared:], b.bus_id)]
    if cls == "SYS":
        links.append(f"socket:{a.numa_node}>{b.numa_node}")
    return tuple(links)


def rounds(
    items: Sequence[AbstractSet[str]], pairs: Sequence[tuple[int, int]], *, ring: bool = False
) -> tuple[tuple[int, ...], ...]:
    """Positions of ``items`` by round: each item joins the first round in which its resources are free.

    items: the resources of each copy. pairs: the (source, destination) of each copy. ring: a device may send and
    receive in one round; else it is in one pair. Both orders give the fewest rounds if all paths are identical, as
    with NVSwitch.
    """
    count = max(map(max, pairs), default=0) + 1
    if not ring:
        items = [item | {f"device:{end}" for end in pair} for item, pair in zip(items, pairs, strict=True)]
    taken: list[set[str]] = []
    members: list[list[int]] = []
    for i in sorted(range(len(items)), key=lambda i: (*_turn(*pairs[i], count, ring=ring), pairs[i])):
        place = next((n for n, resources in enumerate(taken) if resources.isdisjoint(items[i])), len(taken))
        if place == len(taken):
            taken.append(set())
            members.append([])
        taken[place] |= items[i]
        members[place].append(i)
    return tuple(tuple(sorted(round_)) for round_ in members)


def _turn(a: int, b: int, count: int, *, ring: bool) -> tuple[bool, int]:
    """Return the distance around the circle; without ring the direction, and its round of a round-robin tournament."""
    if ring:
        return False, (b - a) % count
    days = count - 1 + count % 2
    return a > b, (2 * min(a, b) if max(a, b) == days else a + b) % days


Depth = Literal["quick", "default", "full"]
DIRECT: tuple[Method, ...] = ("ce-write", "ce-read", "sm-write", "sm-read")
PAGE = 4 * KIB
PCIE_BYTES, NVLINK_BYTES, FABRIC_BYTES = 64 * MIB, 256 * MIB, 16 * MIB
SAMPLES: dict[Depth, tuple[int, int]] = {"quick": (7, 7), "default": (7, 21), "full": (15, 41)}
SWEEP_SAMPLES = (7, 9)
UNKNOWN_GB_S = 10.0
TOUCH_GB_S = 100.0  # rate of filling and comparing on the slowest supported GPU
LATENCY_S = 20e-6
MANY_PAIRS, MANY_PAIRS_BYTES = 1000, 8 * MIB  # a quick run of more does not check each of them by every method


class CopyPaths(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a plan. between: by ordered positions. to_host: links of each device up to its root."""

    devices: tuple[Device, ...]
    between: dict[tuple[int, int], Path] = msgspec.field(default_factory=dict)
    to_host: tuple[tuple[str, ...], ...] = ()

    def class_of(self, src: int, dst: int) -> str:
        """Return the path class, empty if it is not known."""
        return (self.between[src, dst].cls or "") if (src, dst) in self.between else ""


class MeasurementRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The requested measurements. sizes: of the sweep, in bytes. tensor_bytes: of the tensor copied to and from a GPU.

    peer_access, numa_nodes: as in Opened. fabric: GPUs of an NVLink domain of several hosts that offer fabric handles.
    """

    depth: Depth = "default"
    sizes: tuple[int, ...] = ()
    tensor_bytes: int | None = None
    methods: tuple[Method, ...] = ("ce-write", "staged")
    buffer_bytes: int = NVLINK_BYTES
    seed: int = 0
    peer_access: tuple[tuple[bool | None, ...], ...] = ()
    numa_nodes: tuple[int, ...] = ()
    fabric: tuple[int, ...] = ()


def buffer_bytes(machine: CopyPaths, sizes: Sequence[int] = ()) -> int:
    """Return what each buffer needs. sizes: of copies that were asked for."""
    fast = len(machine.devices) == 1 or any((path.cls or "").startswith("NV") for path in machine.between.values())
    return -(-max((*sizes, NVLINK_BYTES if fast else PCIE_BYTES)) // PAGE) * PAGE


def plan(machine: CopyPaths, request: MeasurementRequest) -> tuple[CopyStep, ...]:
    """Return every step in order: integrity first, then speed, so that no result comes from corrupt copies."""
    if request.tensor_bytes is not None:
        return tuple(_tensor(machine, request))
    if len(machine.devices) == 1:  # copies inside it
        return tuple(_local(machine, request))
    steps = [*_integrity(machine, request), *_unidirectional(machine, request)]
    if request.depth != "quick":
        steps += [*_bidirectional(machine, request), *_latencies(machine, request), *_staged(machine, request)]
        steps += _host(machine, request)
    # Last: a handle whose import hangs takes no other copy along.
    return (*steps, *_sizes(machine, request, _one_of_each_class(machine)), *_fabric(machine, request))


def in_rounds(
    machine: CopyPaths, groups: Sequence[tuple[Flow, ...]], *, ring: bool = False
) -> tuple[tuple[Flow, ...], ...]:
    """Put groups of flows into rounds whose groups share no resource.

    ring: a GPU may send in one group and receive in another. That is load and no measurement of one direction: through
    NVSwitch an A100 keeps 77 % of its rate then, a V100 93 %.
    """
    taken = [
        frozenset().union(*(flow_resources(flow, machine.between, machine.to_host) for flow in group))
        for group in groups
    ]
    order = [(group[0].src, group[0].dst) for group in groups]
    return tuple(tuple(flow for i in members for flow in groups[i]) for members in rounds(taken, order, ring=ring))


def alone(machine: CopyPaths, request: MeasurementRequest, flows: tuple[Flow, ...]) -> CopyStep:
    """Return the step that measures one pair alone, in one or both directions at once, to confirm a low result."""
    return _timed(machine, request, "alone" if len(flows) == 1 else "both directions alone", flows)


def pairs(machine: CopyPaths) -> list[tuple[int, int]]:
    return list(permutations(range(len(machine.devices)), 2))


def _integrity(machine: CopyPaths, request: MeasurementRequest) -> Iterator[CopyStep]:
    quick = request.depth == "quick"
    many = quick and len(pairs(machine)) > MANY_PAIRS
    for number, (a, b) in enumerate(pairs(machine)):
        flows = tuple(_flows(request, a, b, DIRECT))
        if many and flows:  # each pair by one method, in turn, and its buffer as one region
            whole = Region(offset=0, size=sum(region.size for region in _regions(request)))
            yield _checked(machine, request, "integrity", (flows[number % len(flows)],), (whole,), 1)
            continue
        for flow in flows:
            count = 1 if quick or flow.method != "ce-write" else 3
            yield _checked(machine, request, "integrity", (flow,), _regions(request), count)
    groups = [(Flow(src=a, dst=b),) for a, b in pairs(machine)]
    for flows in in_rounds(machine, groups, ring=True):
        # Entire rounds simultaneously, while the host reads the sources too: the traffic of other pairs is the load.
        load = tuple(Flow(src=flow.src, dst=HOST) for flow in flows)
        # One long copy: consecutive ones of a region would hide what the last one overwrites.
        most = MANY_PAIRS_BYTES if many else PCIE_BYTES if quick else NVLINK_BYTES
        region = Region(offset=0, size=min(request.buffer_bytes - PAGE, most))
        # More than one round: data of an earlier copy is wrong only if that one had other data.
        yield _checked(machine, request, "integrity under load", (*flows, *load), (region,), 2 if quick else 3)


def _fabric(machine: CopyPaths, request: MeasurementRequest) -> Iterator[CopyStep]:
    """Plan one copy through memory that was exported and imported, of each GPU to the next."""
    ring = zip(request.fabric, (*request.fabric[1:], *request.fabric[:1]), strict=True)
    if len(request.fabric) > 1 and "fabric" in request.methods:
        flows = tuple(Flow(src=a, dst=b, method="fabric") for a, b in ring)
        region = Region(offset=0, size=min(request.buffer_bytes - PAGE, FABRIC_BYTES))
        yield _checked(machine, request, "fabric memory", flows, (region,), 1)


def _regions(request: MeasurementRequest) -> tuple[Region, ...]:
    """Return regions: 4 KiB, one not aligned to a large page, and the timed size; a page after each is a guard."""
    small, usable = Region(offset=0, size=PAGE), request.buffer_bytes - PAGE
    if request.depth == "quick" or request.buffer_bytes <= 4 * MIB:
        return small, Region(offset=PAGE, size=min(usable, 16 * MIB) - PAGE)
    odd = Region(offset=PAGE, size=MIB)
    large = Region(offset=0, size=min(usable, PCIE_BYTES) if request.depth == "default" else usable)
    return small, odd, large


def _unidirectional(machine: CopyPaths, request: MeasurementRequest) -> Iterator[CopyStep]:
    methods: tuple[Method, ...] = DIRECT if request.depth == "full" else ("ce-write",)
    for method in methods:
        groups = [(flow,) for a, b in pairs(machine) for flow in _flows(request, a, b, (method,))]
        for flows in in_rounds(machine, groups):
            yield _timed(machine, request, "one direction", flows)


def _bidirectional(machine: CopyPaths, request: MeasurementRequest) -> Iterator[CopyStep]:
    groups = [(Flow(src=a, dst=b), Flow(src=b, dst=a)) for a, b in combinations(range(len(machine.devices)), 2)]
    for flows in in_rounds(machine, groups):
        yield _timed(machine, request, "both directions", flows)


def _latencies(machine: CopyPaths, request: MeasurementRequest) -> Iterator[CopyStep]:
    """Plan latencies of small copies by the copy engine, and of single loads if the engine has a kernel for them."""
    for a, b in pairs(machine):
        yield _latency(request, (Flow(src=a, dst=b),))
        yield from (_latency(request, (flow,)) for flow in _flows(request, a, b, ("sm-read",)))


def _staged(machine: CopyPaths, request: MeasurementRequest) -> Iterator[CopyStep]:
    """Plan the reference without peer access: one pair of each class, in a full run every pair."""
    if "staged" not in request.methods:
        return
    chosen = pairs(machine) if request.depth == "full" else _one_of_each_class(machine)
    for flows in in_rounds(machine, [(Flow(src=a, dst=b, method="staged"),) for a, b in chosen]):
        yield _timed(machine, request, "through host memory", flows, PCIE_BYTES)
    yield _latency(request, tuple(Flow(src=a, dst=b, method="staged") for a, b in chosen[:1]))


def _host(machine: CopyPaths, request: MeasurementRequest) -> Iterator[CopyStep]:
    nodes = request.numa_nodes if request.depth == "full" and len(request.numa_nodes) > 1 else ()
    for device in range(len(machine.devices)):
        ways = Flow(src=HOST, dst=device), Flow(src=device, dst=HOST)
        flows = [replace(flow, node=node) for node in (None, *nodes) for flow in ways]
        if request.depth == "full" and "sm-read" in request.methods:
            flows += [replace(ways[0], method="sm-read"), replace(ways[1], method="sm-write")]
        yield from (_timed(machine, request, "host and device", (flow,), PCIE_BYTES) for flow in flows)


def _sizes(machine: CopyPaths, request: MeasurementRequest, chosen: Sequence[tuple[int, int]]) -> Iterator[CopyStep]:
    for size in request.sizes:
        for a, b in chosen:
            yield replace(_timed(machine, request, "sizes", (Flow(src=a, dst=b),), size), samples=SWEEP_SAMPLES)


def _one_of_each_class(machine: CopyPaths) -> list[tuple[int, int]]:
    first: dict[str, tuple[int, int]] = {}
    for pair in pairs(machine):
        first.setdefault(machine.class_of(*pair), pair)
    return list(first.values())


def _local(machine: CopyPaths, request: MeasurementRequest) -> Iterator[CopyStep]:
    for device in range(len(machine.devices)):
        flow = Flow(src=device, dst=device)
        yield _checked(machine, request, "integrity", (flow,), _regions(request), 3)
        yield _timed(machine, request, "inside one device", (flow,))
        yield _latency(request, (flow,))
    yield from _host(machine, request)
    yield from _sizes(machine, request, [(0, 0)])


def _tensor(machine: CopyPaths, request: MeasurementRequest) -> Iterator[CopyStep]:
    size = request.tensor_bytes or 0
    ways = ((0, 1), (1, 0)) if len(machine.devices) > 1 else ((0, 0),)
    for src, dst in ways:
        flow = Flow(src=src, dst=dst)
        yield _checked(machine, request, "integrity", (flow,), (Region(offset=0, size=size // 8 * 8),), 1)
        yield _timed(machine, request, "tensor", (flow,), size)


def _flows(request: MeasurementRequest, src: int, dst: int, wanted: Sequence[Method]) -> Iterator[Flow]:
    """Yield flows for the methods of the engine. A kernel that reads or writes another GPU needs peer access."""
    for method in wanted:
        accessing, owner = (dst, src) if method == "sm-read" else (src, dst)
        refused = method.startswith("sm-") and request.peer_access and not request.peer_access[accessing][owner]
        if method in request.methods and not refused:
            yield Flow(src=src, dst=dst, method=method)


def _timed(
    machine: CopyPaths, request: MeasurementRequest, purpose: str, flows: tuple[Flow, ...], size: int | None = None
) -> CopyStep:
    if size is None:
        classes = [machine.class_of(flow.src, flow.dst) for flow in flows if flow.src != flow.dst]
        fast = len(classes) < len(flows) or any(cls.startswith("NV") for cls in classes)
        size = NVLINK_BYTES if fast else PCIE_BYTES
    size = min(size, request.buffer_bytes)
    least, _ = samples = SAMPLES[request.depth]
    longest = size / min(_rates(machine, flows)) / 1e9
    sample = max(SAMPLE_S, longest)
    planned = longest + max(WARM_UP_S, sample) + sample + least * sample
    return CopyStep(operation="bandwidth", purpose=purpose, flows=flows, size=size, samples=samples, planned_s=planned)


def _latency(request: MeasurementRequest, flows: tuple[Flow, ...]) -> CopyStep:
    least, _ = samples = SAMPLES[request.depth]
    planned = (least + 1) * LATENCY_REPEATS * LATENCY_S * len(flows) / 4
    return CopyStep(operation="latency", purpose="latency", flows=flows, samples=samples, planned_s=planned)


def _checked(
    machine: CopyPaths,
    request: MeasurementRequest,
    purpose: str,
    flows: tuple[Flow, ...],
    regions: tuple[Region, ...],
    count: int,
) -> CopyStep:
    rate = min(_rates(machine, flows))
    size = sum(region.size for region in regions)
    room = min(request.buffer_bytes - region.offset - region.size for region in regions)
    return CopyStep(
        operation="integrity",
        purpose=purpose,
        flows=flows,
        regions=regions,
        rounds=count,
        guard=PAGE if room >= PAGE else 0,
        seed=request.seed,
        devices=len(machine.devices),
        planned_s=count * (size / rate + 3 * size * len(flows) / TOUCH_GB_S) / 1e9,
    )


def _rates(machine: CopyPaths, flows: Sequence[Flow]) -> list[float]:
    """Return the estimated rate of each flow, for the planned time only; flows with a common link share its rate."""
    taken = [flow_resources(flow, machine.between, machine.to_host) for flow in flows]
    contention = Counter(resource for resources in taken for resource in resources)
    rates = []
    for flow, resources in zip(flows, taken, strict=True):
        path = machine.between.get((flow.src, flow.dst))
        known = path.expected if path and flow.method != "staged" else None
        rate = TOUCH_GB_S if flow.src == flow.dst else known.unidirectional_gb_s if known else UNKNOWN_GB_S
        rates.append(rate / max((contention[resource] for resource in resources), default=1))
    return rates
