"""Host copies from the wrong NUMA node: a copy from far memory does not measure the link."""

from collections.abc import Iterator

from gpucheck.diagnose.hypotheses._links import best_numbers
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.statements._case import Case, Claim, Confidence
from gpucheck.model.diagnosis.observations import HostDevice
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict

# Another node's memory is slower by the socket link; less than this is no difference. HEALTHY: part of the raw rate.
SLOWER_NODE, HEALTHY = 0.85, 0.72


def state(case: Case) -> Iterator[Finding]:
    """Each GPU with host copies, but for those whose link is at fault."""
    m = case.machine
    blamed = {f.subject for f in case.findings if f.verdict in (Verdict.FAIL, Verdict.WARN)}
    for i in range(m.count):
        rows = [row for row in m.measured.host_device if row.gpu == i and _rate(row)]
        if rows and m.gpu_label(i) not in blamed:
            yield from _placed(m, i, rows)


def _rate(row: HostDevice) -> float:
    known = [value for value in (row.h2d_gb_s, row.d2h_gb_s) if value]
    return min(known, default=0.0)


def _placed(m: Machine, i: int, rows: list[HostDevice]) -> Iterator[Finding]:
    node = m.gpu(i).numa_node
    own = max((_rate(row) for row in rows if node is not None and row.numa_node == node), default=None)
    other = [row for row in rows if row.numa_node is not None and node is not None and row.numa_node != node]
    best = max(rows, key=_rate)
    if own is not None and other and own < SLOWER_NODE * _rate(best):
        words = (
            f"memory of node {best.numa_node} is nearer to this GPU than that of node {node}, which the firmware names"
        )
        yield _wrong(m, i, own, _rate(best), words, "certain")
    elif own is None and other and _slow(m, i, _rate(best)):
        nodes = ", ".join(map(str, sorted({row.numa_node for row in other if row.numa_node is not None})))
        words = f"the copies used memory of node {nodes}, and this GPU is at node {node}"
        yield _wrong(m, i, _rate(best), (m.raw[i] or 0.0) * 0.80, words, "likely")
    elif node is None and _slower_than_others(m, i, best):
        words = (
            f"all copies used memory of node {best.numa_node}, other GPUs are fast from there, and this one is fast "
            "with its peers: it may be at another node"
        )
        yield _wrong(m, i, _rate(best), max(_rate(row) for row in m.measured.host_device), words, "possible")


def _slow(m: Machine, i: int, rate: float) -> bool:
    """Below what the link should carry; without a known link, clearly below the best of the machine."""
    raw = m.raw[i]
    return rate < (HEALTHY * raw if raw else SLOWER_NODE * max(_rate(row) for row in m.measured.host_device))


def _slower_than_others(m: Machine, i: int, best: HostDevice) -> bool:
    """Another GPU of the same model is fast from this node, while this GPU's peer copies show a good link."""
    rows = [row for row in m.measured.host_device if row.numa_node == best.numa_node and row.gpu != i]
    same_model = [_rate(row) for row in rows if m.gpu(row.gpu).model == m.gpu(i).model]
    several = m.host.sockets is None or m.host.sockets > 1
    fast_elsewhere = bool(same_model) and _rate(best) < SLOWER_NODE * max(same_model)
    return best.numa_node is not None and several and fast_elsewhere and best_numbers(m)[i] > 1.05 * _rate(best)


def _wrong(m: Machine, i: int, seen: float, wanted: float, why: str, sure: Confidence) -> Finding:
    return Claim("host-copies", Verdict.WARN, "wrong-numa-placement", sure).finding(
        subject=m.gpu_label(i),
        seen=seen,
        wanted=wanted,
        why=why,
        fix="measure again from each node: numactl --cpunodebind=N --membind=N",
    )
