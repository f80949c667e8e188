"""Convert results to the report: positions to rows and columns, seconds to rates."""

import msgspec

from gpucheck.measure.planning.plan import CopyPaths, pairs
from gpucheck.measure.reporting.observed import latencies, tables
from gpucheck.measure.reporting.surroundings import Scene, nvml_status
from gpucheck.measure.running.runner import Results, total
from gpucheck.measure.values import Timing
from gpucheck.model import NvmlFailure, NvmlReading
from gpucheck.model.bandwidth import (
    HostLink,
    HostNode,
    Matrix,
    Measured,
    MeasuredDevice,
    MeasuredPair,
    PeerAccess,
    SizePoint,
)
from gpucheck.model.copies import HOST, Copied, Flow
from gpucheck.topology.expected import both_ways_expected

PLACES = 2
GPU_IS_LOST = 15  # nvmlReturn_t
WAYS = {
    "spin": "the driver rejects stream waits for memory (as with confidential computing): copies start when a kernel "
    "that spins for a time ends",
    "events": "copies that block the host while they wait for a common start are timed by events alone: up to 1 % low",
}


def devices(results: Results, machine: CopyPaths) -> tuple[MeasuredDevice, ...]:
    known = results.opened.fabric_handles if results.opened else ()
    handles = known or (None,) * len(machine.devices)
    return tuple(
        MeasuredDevice(**msgspec.structs.asdict(device), fabric_handles=offered)
        for device, offered in zip(machine.devices, handles, strict=True)
    )


def measured(timing: Timing) -> Measured:
    return Measured(
        gb_s=round(timing.gb_s, PLACES),
        mad_percent=round(100 * timing.mad_s / timing.median_s, PLACES),
        slowest_gb_s=round(timing.size / timing.max_s / 1e9, PLACES),
        fastest_gb_s=round(timing.size / timing.min_s / 1e9, PLACES),
        samples=timing.samples,
        size_bytes=timing.size,
        timing=timing.way,
    )


def measured_pairs(results: Results, machine: CopyPaths) -> tuple[MeasuredPair, ...]:
    verified: dict[tuple[int, int], int] = {}
    for _, check in results.checks:
        ends = check.flow.src, check.flow.dst
        verified[ends] = verified.get(ends, 0) + check.bytes_verified
    return tuple(_pair(src, dst, results, machine, verified.get((src, dst), 0)) for src, dst in pairs(machine))


def _pair(src: int, dst: int, results: Results, machine: CopyPaths, verified: int) -> MeasuredPair:
    path = machine.between.get((src, dst))
    expected = path.expected if path else None
    timing = results.one_way(src, dst)
    staged = results.one_way(src, dst, "staged")
    latency = results.latency.get(Flow(src=src, dst=dst))
    load = results.latency.get(Flow(src=src, dst=dst, method="sm-read"))
    both = results.both_ways().get((min(src, dst), max(src, dst)))
    both_gb_s = total(both) if both else None
    sums = both_ways_expected(path.cls, expected) if path and expected else None
    both_goal, both_low = sums or (None, None)
    others = {
        str(flow.method): round(t.gb_s, PLACES)
        for flow, t in results.together.items()
        if (flow.src, flow.dst) == (src, dst) and flow.method not in ("ce-write", "staged")
    }
    return MeasuredPair(
        src=src,
        dst=dst,
        cls=path.cls if path else None,
        measured=measured(timing) if timing else None,
        expected_gb_s=expected.unidirectional_gb_s if expected else None,
        low_gb_s=expected.low_gb_s if expected else None,
        high_gb_s=expected.high_gb_s if expected else None,
        ratio=round(timing.gb_s / expected.unidirectional_gb_s, 3) if timing and expected else None,
        basis=expected.basis if expected else None,
        alone=Flow(src=src, dst=dst) in results.alone,
        latency_us=round(latency.median_s * 1e6, PLACES) if latency else None,
        load_latency_us=round(load.median_s * 1e6, PLACES) if load else None,
        staged_gb_s=round(staged.gb_s, PLACES) if staged else None,
        both_ways_gb_s=_rounded(both_gb_s),
        both_ways_expected_gb_s=_rounded(both_goal),
        both_ways_low_gb_s=_rounded(both_low),
        both_ways_ratio=round(both_gb_s / both_goal, 3) if both_gb_s and both_goal else None,
        by_method=others,
        bytes_verified=verified,
    )


def matrices(results: Results, machine: CopyPaths) -> dict[str, Matrix]:
    """Return matrices with their names in ``gpucheck diagnose``. Empty matrices are omitted."""
    count = range(len(machine.devices))
    return {
        name: tuple(tuple(_rounded(cells.get((a, b))) for b in count) for a in count)
        for name, cells in (tables(results) | {"load_latency_us": latencies(results, "sm-read")}).items()
        if cells
    }


def _rounded(value: float | None) -> float | None:
    return round(value, PLACES) if value is not None else None


def host_links(results: Results, machine: CopyPaths) -> tuple[HostLink, ...]:
    engines = {flow: round(t.gb_s, PLACES) for flow, t in results.host.items()}
    rates = {(f.src, f.dst, f.node): rate for f, rate in engines.items() if f.method == "ce-write"}
    nodes = sorted({flow.node for flow in results.host if flow.node is not None})

    def ways(place: int, node: int | None) -> dict[str, float | None]:
        return {"h2d_gb_s": rates.get((HOST, place, node)), "d2h_gb_s": rates.get((place, HOST, node))}

    links = (
        HostLink(
            device=place,
            **ways(place, None),
            h2d_kernel_gb_s=engines.get(Flow(src=HOST, dst=place, method="sm-read")),
            d2h_kernel_gb_s=engines.get(Flow(src=place, dst=HOST, method="sm-write")),
            by_node=tuple(HostNode(node=node, **found) for node in nodes if any((found := ways(place, node)).values())),
        )
        for place in range(len(machine.devices))
    )
    return tuple(link for link in links if link.h2d_gb_s or link.d2h_gb_s or link.by_node)


def peer_access(results: Results, scene: Scene | None) -> PeerAccess | None:
    """Return peer access as CUDA reports it, with NVML's status."""
    if results.opened is None or not results.opened.peer_access or len(results.devices) < 2:
        return None
    return PeerAccess(cuda=results.opened.peer_access, nvml=nvml_status(scene) or () if scene is not None else ())


def local(results: Results, machine: CopyPaths) -> tuple[float | None, ...]:
    """Return copies inside each device, empty unless requested. Counts bytes copied, not bytes read and written."""
    rates = [results.one_way(place, place) for place in range(len(machine.devices))]
    return tuple(round(t.gb_s, PLACES) if t else None for t in rates) if any(rates) else ()


def sizes(results: Results, machine: CopyPaths) -> tuple[SizePoint, ...]:
    return tuple(
        SizePoint(
            src=t.flow.src,
            dst=t.flow.dst,
            cls=path.cls if (path := machine.between.get((t.flow.src, t.flow.dst))) else None,
            size_bytes=t.size,
            gb_s=round(t.gb_s, PLACES),
        )
        for t in results.sizes
    )


def tensor(results: Results) -> dict[str, float]:
    """Return the tensor copy: bytes, and GB/s and milliseconds of each direction."""
    answer: dict[str, float] = {}
    for flow, timing in results.together.items():
        way = f"{results.devices[flow.src].index} to {results.devices[flow.dst].index}"
        answer["bytes"] = timing.size
        answer[f"{way}, GB/s"] = round(timing.gb_s, PLACES)
        answer[f"{way}, ms"] = round(timing.median_s * 1e3, PLACES)
    return answer


def method(results: Results) -> tuple[str, ...]:
    """Return the method as text, for comparison with other tools."""
    if results.opened is None:
        return ()
    lines = [
        f"clock: {results.opened.clock}",
        "bandwidth: the source writes; copies are queued before they start, 10 to 20 ms per sample, at least 7 samples "
        "after 50 ms of warm-up; values are medians, GB/s is 10**9 bytes per second",
    ]
    ways = {timing.way for timing in (*results.together.values(), *results.host.values())}
    lines += [text for way, text in WAYS.items() if way in ways]
    if results.both:
        lines.append("both directions: sum of the two, started together")
    if results.latency:
        lines.append("latency: consecutive 16-byte copies, each started after the previous one")
    if any(flow.method == "sm-read" for flow in results.latency):
        lines.append("load latency: a kernel of the column follows addresses in the memory of the row, load after load")
    if results.rounds:
        lines.append("pairs that share no link are measured at the same time; low pairs are measured again alone")
    if _in_turn(results):
        lines.append(
            "many pairs: the data of each is compared by one copy method, in turn, and 8 MiB of it under load; level "
            "standard compares by every method"
        )
    return tuple(lines)


def _in_turn(results: Results) -> bool:
    found: dict[tuple[int, int], set[str]] = {}
    for loaded, check in results.checks:
        if not loaded:
            found.setdefault((check.flow.src, check.flow.dst), set()).add(check.flow.method)
    return len(set().union(*found.values())) > 1 and max(map(len, found.values())) == 1


def integrity(results: Results) -> dict[str, int]:
    """Return the bytes compared, and how many of them were wrong."""
    checks = [check for _, check in results.checks]
    return {
        "bytes_verified": sum(check.bytes_verified for check in checks),
        "bytes_verified_under_load": sum(check.bytes_verified for loaded, check in results.checks if loaded),
        "bytes_verified_by_host": sum(check.host_bytes_verified for check in checks),
        "rounds": sum(check.rounds for check in checks),
        "wrong_words": sum(check.mismatches for check in checks),
    }


def copied(
    results: Results,
    *,
    gpus: bool,
    loaded: bool,
    channels: bool = False,
    after: NvmlReading | NvmlFailure | None = None,
) -> Copied:
    """Return what rules evaluate in addition to rates; arguments as in Copied. after: NVML's reading at the end."""
    gone = {gap.subject for gap in after.gaps if gap.code == GPU_IS_LOST} if isinstance(after, NvmlReading) else ()
    devices = enumerate(results.devices)
    lost = (place for place, one in devices if not {f"gpu index {one.index}", f"gpu:{one.bus_id}"}.isdisjoint(gone))
    return Copied(
        devices=results.devices,
        of_gpus=gpus,
        opened=results.opened is not None,
        checks=tuple(results.checks),
        failures=tuple(results.failures),
        pairs=len(results.measured()),
        gave_up=results.gave_up,
        interrupted=results.interrupted,
        loaded=loaded,
        unread=results.unread,
        channels=channels,
        lost=tuple(lost) if results.failures else (),
    )
