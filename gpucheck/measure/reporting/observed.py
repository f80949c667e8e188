"""Convert results to observations: values with their uncertainty, corrupt data, copies without a result.

Rates have six digits, so that they are the same after JSON encoding.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from gpucheck.knowledge.xid import cuda_error_text
from gpucheck.measure.planning.plan import CopyPaths
from gpucheck.measure.reporting.surroundings import Scene, ecc_lines, square, surroundings, under_load
from gpucheck.measure.running.runner import Pair, Results, by_pair, total
from gpucheck.model.copies import HOST, DataCheck, Failure, Flow, copied_pairs, where_copied
from gpucheck.model.copies import Method as CopyMethod
from gpucheck.model.diagnosis.observations import (
    CopyFailure,
    CopyFailureKind,
    Damaged,
    Flags,
    HostDevice,
    Matrix,
    Measured,
    Method,
    Observations,
)
from gpucheck.printable import printable

Cell = TypeVar("Cell")
KINDS: dict[str, CopyFailureKind] = {"stuck": "stuck", "crashed": "crashed", "refused": "error"}
LEAST = 1e-9  # a fraction below it is written as 0


def observations(results: Results, machine: CopyPaths, scene: Scene) -> Observations:
    """Return observations of the host and its links after (or during) a run.

    Pairs of the results are positions in ``scene.gpus``.
    """
    around = surroundings(scene)
    if results.opened is not None and len(results.opened.peer_access) > 1:
        around = replace(around, p2p_access=results.opened.peer_access)  # CUDA's value applies to copies, not NVML's
    return replace(around, measured=measured(results, machine, scene))


def measured(results: Results, machine: CopyPaths, scene: Scene) -> Measured:
    """Return the measured values. An empty matrix is None; all are empty if the copy engine did not open."""
    failures = tuple(_failure(failure, results) for failure in results.failures if failure.is_the_copys)
    if results.opened is None:
        return Measured(failures=failures)
    count = len(machine.devices)
    one_way, both = results.measured(), results.both_ways()
    checks = [check for _, check in results.checks if check.flow.src != check.flow.dst]
    compared = sum(check.bytes_verified for check in checks)
    known: dict[str, Any] = {name: _table(count, cells) for name, cells in tables(results).items()}
    damaged = tuple(_damaged(results, machine, scene))
    copied = [row for row in damaged if not row.at_source]
    kinds = {row.damage if row.damage != "mixed" else None for row in copied}
    return Measured(
        **known,
        p2p_uni_error=_table(count, {pair: _part(timing.error) for pair, timing in one_way.items()}),
        p2p_uni_alone=_flags(count, {pair: Flow(src=pair[0], dst=pair[1]) in results.alone for pair in one_way}),
        p2p_bidir_error=_table(count, _each_way({p: _part(max(t.error for t in both[p])) for p in both})),
        p2p_bidir_alone=_flags(count, _each_way({pair: pair in results.both_alone for pair in both})),
        method=Method(engine="ce", direction="write") if one_way else Measured().method,
        host_device=tuple(filter(None, (_host_device(results, place, scene) for place in range(count)))),
        under_load=under_load(scene),
        integrity_bad_pairs=tuple(sorted({pair for row in copied for pair in row.pairs})) if compared else None,
        damage=kinds.pop() if len(kinds) == 1 else None,
        damaged=damaged,
        bytes_compared=compared or None,
        failures=failures,
    )


def tables(results: Results) -> dict[str, dict[Pair, float]]:
    """Return the measured values of ordered pairs by the name of their matrix."""
    staged = by_pair(results.together | results.alone, "staged")
    return {
        "p2p_uni_gb_s": {pair: timing.gb_s for pair, timing in results.measured().items()},
        "p2p_bidir_gb_s": _each_way({pair: total(timings) for pair, timings in results.both_ways().items()}),
        "staged_uni_gb_s": {pair: timing.gb_s for pair, timing in staged.items()},
        "p2p_latency_us": latencies(results, "ce-write"),
        "staged_latency_us": latencies(results, "staged"),
    }


def latencies(results: Results, method: CopyMethod) -> dict[Pair, float]:
    return {pair: timing.median_s * 1e6 for pair, timing in by_pair(results.latency, method).items()}


def _digits(number: float) -> float:
    return float(f"{number:.6g}")


def _part(number: float) -> float:
    return min(number, 1.0) if number >= LEAST else 0.0


def _table(count: int, cells: dict[Pair, float]) -> Matrix | None:
    known = {pair: _digits(value) for pair, value in cells.items()}
    return square(count, lambda i, j: known.get((i, j)))


def _flags(count: int, cells: dict[Pair, bool]) -> Flags | None:
    return square(count, lambda i, j: cells.get((i, j)))


def _each_way(cells: dict[Pair, Cell]) -> dict[Pair, Cell]:
    return cells | {(b, a): value for (a, b), value in cells.items()}


def _host_device(results: Results, place: int, scene: Scene) -> HostDevice | None:
    """Return both directions. The memory is on the GPU's NUMA node if this process may use its CPUs."""
    there, back = results.host.get(Flow(src=HOST, dst=place)), results.host.get(Flow(src=place, dst=HOST))
    if there is None and back is None:
        return None
    node, usable = results.devices[place].numa_node, results.opened.numa_nodes if results.opened else ()
    return HostDevice(
        gpu=place,
        numa_node=node if node in usable or scene.topology.simulated else None,
        h2d_gb_s=_digits(there.gb_s) if there else None,
        d2h_gb_s=_digits(back.gb_s) if back else None,
    )


def _damaged(results: Results, machine: CopyPaths, scene: Scene) -> Iterable[Damaged]:
    """Return one row for all pairs with the same corruption on the same path class, and one for host mismatches.

    Pairs whose source was wrong have rows of their own.
    """
    groups: dict[tuple[str, bool, bool], list[tuple[bool, DataCheck]]] = {}
    doubted = []
    for loaded, check in results.checks:
        if check.flow.src == check.flow.dst or not check.bad_rounds or not check.damage:
            continue
        if check.disagreements:
            doubted.append((loaded, check))
        if check.mismatches > check.disagreements:
            nvlink = machine.class_of(check.flow.src, check.flow.dst).startswith("NV")
            groups.setdefault((check.damage, nvlink, check.at_source), []).append((loaded, check))
    for (_, _, at_source), rows in groups.items():
        wrong = sum(check.mismatches - check.disagreements for _, check in rows)
        yield replace(_merged(rows, wrong, scene), at_source=at_source)
    if doubted:
        yield replace(_merged(doubted, sum(check.disagreements for _, check in doubted), scene), host_only=True)


def _merged(rows: Sequence[tuple[bool, DataCheck]], wrong: int, scene: Scene) -> Damaged:
    checks = [check for _, check in rows]
    methods = sorted({check.flow.method for check in checks})
    rounds = f"{sum(check.bad_rounds for check in checks)} of {sum(check.rounds for check in checks)} rounds corrupt"
    return Damaged(
        pairs=tuple(sorted({(check.flow.src, check.flow.dst) for check in checks})),
        damage=checks[0].damage,
        wrong=wrong,
        words=sum(check.bytes_verified for check in checks) // 8,
        loaded_only=all(loaded for loaded, _ in rows),
        evidence=(
            *map(printable, checks[0].evidence),
            f"copied by {', '.join(methods)}; first wrong byte {checks[0].first}; {rounds}",
            *ecc_lines(scene, sorted({place for check in checks for place in (check.flow.src, check.flow.dst)})),
        ),
    )


def _failure(failure: Failure, results: Results) -> CopyFailure:
    """Return the failure; its detail begins with the name of CUDA's code, or the GPU of a copy within one GPU."""
    pairs = tuple(pair for pair in copied_pairs([failure]) if pair[0] != pair[1])
    name = cuda_error_text(failure.code) if failure.code is not None else ""
    parts = [
        "" if pairs else where_copied(failure, results.devices),
        "" if failure.detail.startswith(name) else name,
        failure.detail,
    ]
    return CopyFailure(
        kind=KINDS[failure.kind],
        step=failure.purpose,
        pairs=pairs,
        code=failure.code,
        detail=printable(": ".join(part for part in dict.fromkeys(parts) if part)),
    )
