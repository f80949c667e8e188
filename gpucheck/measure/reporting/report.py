"""Convert results to the report: positions to rows and columns, seconds to rates."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from gpucheck.knowledge.codes import Subject
from gpucheck.measure.planning.plan import CopyPaths, pairs
from gpucheck.measure.planning.selection import COPIES
from gpucheck.measure.reporting.observed import (
    copied_pairs,
    count_text,
    latencies,
    pair_subject,
    pairs_text,
    tables,
    where_copied,
)
from gpucheck.measure.reporting.surroundings import Scene, nvml_status
from gpucheck.measure.running.runner import Results, total
from gpucheck.measure.values import HOST, PEERS_USED_UP, DataCheck, Failure, FailureKind, Flow, Timing, error_text
from gpucheck.model import Finding, NvmlFailure, NvmlReading
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
from gpucheck.model.device import Device
from gpucheck.printable import bytes_text
from gpucheck.topology.expected import both_ways_expected

PLACES = 2
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


FABRIC, INTEGRITY, BANDWIDTH = (Subject(check=name) for name in ("fabric-memory", "p2p-integrity", "p2p-bandwidth"))
PACKAGE = {"cuda": "cuda-bindings", "cuda.bindings": "cuda-bindings"}
SHOWN = 8
GPU_IS_LOST = 15  # nvmlReturn_t
NOT_PERMITTED = 800
NO_RESOURCES = "measure.copies-no-resources"
CHANNELS = "/dev/nvidia-caps-imex-channels"


# Why a result is unknown, as what is seen, and its code. None is related to a link, a GPU or the driver.
UNKNOWN: dict[FailureKind, tuple[str, str]] = {
    "not-timed": ("the copies could not be queued in time", "measure.copies-not-timed"),
    "no-memory": ("out of memory", "measure.copies-no-memory"),
    "no-process": ("the measuring process could not be started", "measure.copies-no-process"),
    "no-resources": ("the host has no space, memory, processes or open files left for it", NO_RESOURCES),
    "killed": ("the measuring process was killed from outside", "measure.copies-killed"),
    "defect": ("a defect of gpucheck or of a Python package that it uses", "measure.copies-defect"),
    "not-started": ("the copy engine did not start", "measure.engine-not-started"),
}
# Copies between CPU processes use neither driver nor link.
OF_PROCESSES: dict[FailureKind, tuple[str, str]] = {
    "stuck": ("the copy hung", "measure.processes-stuck"),
    "crashed": ("the measuring process crashed", "measure.processes-crashed"),
}


def gaps(results: Results, *, gpus: bool, loaded: bool, channels: bool = False) -> tuple[Finding, ...]:
    """Return findings about what was not measured, and on data of copies without a link.

    gpus: False for CPU processes. loaded: NVML was read meanwhile. channels: the host has an IMEX channel.
    """
    found = [*_failures(results, UNKNOWN if gpus else UNKNOWN | OF_PROCESSES)]
    if results.opened is None:
        return tuple(found)
    found += [*_data(results, gpus=gpus), *_fabric(results, channels=channels)]
    if not gpus:
        pairs = count_text(len(results.measured()), "pair")
        found.append(BANDWIDTH.skips("measure.only-processes", f"not applicable: {pairs} of CPU processes, no GPU"))
    elif not loaded:
        load, code = Subject(check="links-under-load"), "measure.load-not-read"
        if results.unread:
            load, code = load.with_evidence(results.unread), NO_RESOURCES
        found.append(load.unknown(code, "link state under load unknown: no NVML reading while copies ran"))
    if gpus and len(results.devices) == 1:
        found.append(BANDWIDTH.skips("measure.single-gpu", "not applicable: 1 GPU, no pair"))
    return tuple(found)


def lost(devices: Sequence[Device], after: NvmlReading | NvmlFailure) -> tuple[Finding, ...]:
    """Return a finding for each GPU that NVML reports as lost after a copy failed. after: NVML's reading then."""
    if isinstance(after, NvmlFailure):
        return ()
    gone = {gap.subject for gap in after.gaps if gap.code == GPU_IS_LOST}
    return tuple(
        Subject(check=COPIES.check, name=f"gpu:{device.label}").fails(
            "measure.gpu-lost-meanwhile",
            f"GPU {device.index} was lost during the copies",
            "a GPU that NVML can read after the copies",
        )
        for device in devices
        if {f"gpu index {device.index}", f"gpu:{device.bus_id}"} & gone
    )


def _failures(results: Results, reasons: dict[FailureKind, tuple[str, str]]) -> Iterator[Finding]:
    for failure in results.failures:
        if failure.kind == "missing-package":
            package = PACKAGE.get(failure.detail, failure.detail)
            seen = f"not run: Python package {failure.detail} is not installed"
            yield COPIES.skips("measure.package-missing", seen, package=package)
    for kind, (headline, code) in reasons.items():
        if unknown := [failure for failure in results.failures if failure.kind == kind]:
            yield _unknown(unknown, headline, code, results)
    peers = [failure.purpose for failure in results.failures if failure.kind == "no-peers-left"]
    if peers:
        seen = f"not run: {', '.join(dict.fromkeys(peers))}: {error_text(PEERS_USED_UP)}"
        yield COPIES.skips("measure.peers-used-up", seen)
    if results.gave_up and results.opened is not None:
        yield COPIES.unknown("measure.copies-ended", f"the remaining copies unknown: {results.gave_up}")
    if results.interrupted:
        yield COPIES.unknown("measure.copies-interrupted", "interrupted: the remaining copies unknown")


def _unknown(failures: Sequence[Failure], headline: str, code: str, results: Results) -> Finding:
    """Return the finding on all failures of one kind. Only timings name the pair; other reasons concern the process."""
    timed = failures[0].kind == "not-timed"
    pairs = copied_pairs(failures) if timed else []
    steps = ", ".join(dict.fromkeys(failure.purpose for failure in failures))
    where = f" for {pairs_text(results, pairs)}" if pairs else ""
    lines = dict.fromkeys(f"{_copy(f, results)}, {f.purpose}: {f.detail}" for f in failures)
    subject = Subject(
        check=COPIES.check, name=pair_subject(results, pairs) if pairs else "host", evidence=tuple(lines)[:SHOWN]
    )
    seen = f"{'timings' if timed else 'results'} unknown{where} ({steps}): {headline}"
    known = next(((one.reason, one.values) for one in failures if one.reason is not None), (code, {}))
    values: dict[str, Any] = known[1]
    return subject.unknown(known[0], seen, **values)


def _copy(failure: Failure, results: Results) -> str:
    if failure.purpose == "open":
        return "opening the copy engine"
    if pairs := copied_pairs([failure]):
        return f"copy {pairs_text(results, pairs)}"
    where = where_copied(failure, results)
    return f"copy between host and {where}" if where else f"copies ({failure.purpose})"


def _data(results: Results, *, gpus: bool) -> Iterator[Finding]:
    checks = [check for _, check in results.checks if not gpus or check.flow.src == check.flow.dst]
    bad = [check for check in checks if check.mismatches]
    if not any(check.bytes_verified for _, check in results.checks):
        yield INTEGRITY.unknown("measure.nothing-compared", "data integrity unknown: 0 bytes compared")
    elif bad:
        yield _wrong(bad, results, gpus=gpus)
    elif checks:
        where = "inside GPUs" if gpus else "between CPU processes"
        compared = bytes_text(sum(check.bytes_verified for check in checks))
        yield INTEGRITY.passes(f"{compared} compared {where}, no wrong word")


def _wrong(bad: Sequence[DataCheck], results: Results, *, gpus: bool) -> Finding:
    pairs = sorted({(check.flow.src, check.flow.dst) for check in bad})
    subject = Subject(check=INTEGRITY.check, name=pair_subject(results, pairs), evidence=bad[0].evidence)
    seen = f"{pairs_text(results, pairs)}: {count_text(sum(c.mismatches for c in bad), '8-byte word')} wrong"
    return subject.fails("measure.gpu-data-wrong" if gpus else "measure.host-data-wrong", seen, 0)


def _fabric(results: Results, *, channels: bool) -> Iterator[Finding]:
    """Yield a finding on memory shared by fabric handles. Wrong data is that of other copies: see p2p-integrity."""
    for failure in (failure for failure in results.failures if failure.kind == "not-shared"):
        if failure.code == NOT_PERMITTED and not channels:
            yield FABRIC.skips("measure.no-imex-channel", f"not run: no IMEX channel in {CHANNELS}")
            continue
        yield FABRIC.warns(
            "measure.no-fabric-memory",
            f"the driver shares no memory by fabric handles: {failure.detail}",
            "memory that GPUs of other hosts can import",
            confidence="likely" if failure.code == NOT_PERMITTED else "possible",
        )
    checks = [check for _, check in results.checks if check.flow.method == "fabric"]
    if checks and not any(check.mismatches for check in checks):
        compared = bytes_text(sum(check.bytes_verified for check in checks))
        yield FABRIC.passes(f"{compared} copied through memory imported by fabric handles on this host, no wrong word")
