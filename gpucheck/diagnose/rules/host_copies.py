"""Copies between host memory and one GPU: the GPU's own link, or a process on the wrong NUMA node."""

from collections.abc import Iterator

from gpucheck.diagnose._rule import Case, Confidence, Diagnosis, Rule, finding
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.rules._links import cause_of, together
from gpucheck.model.observations import HostDevice
from gpucheck.model.verdict import Verdict

# Part of the link's raw rate. Healthy machines reach 0.80 (Gen4) to 0.88 (Gen5) and 0.6 at least (cloud floors on
# Gen3).
WARN_BELOW, FAIL_BELOW = 0.60, 0.45
# Another node's memory is slower by the socket link; less than this is no difference.
SLOWER_NODE = 0.85


def judge(case: Case) -> Iterator[Diagnosis]:
    """Placement first: a copy from the wrong node says nothing about the link."""
    m = case.machine
    found: list[Diagnosis] = []
    for i in range(m.count):
        rows = [row for row in m.measured.host_device if row.gpu == i and _rate(row)]
        found += _placed(case, i, rows) if rows else ()
    links = [diagnosis for diagnosis in found if (diagnosis.finding.cause or "").startswith("pcie-")]
    yield from (diagnosis for diagnosis in found if diagnosis not in links)
    yield from together(m, links)


def _rate(row: HostDevice) -> float:
    told = [value for value in (row.h2d_gb_s, row.d2h_gb_s) if value]
    return min(told, default=0.0)


def _placed(case: Case, i: int, rows: list[HostDevice]) -> Iterator[Diagnosis]:
    m, node = case.machine, case.machine.gpu(i).numa_node
    own = [row for row in rows if node is not None and row.numa_node == node]
    other = [row for row in rows if row.numa_node is not None and node is not None and row.numa_node != node]
    best = max(rows, key=_rate)
    nearest = max((_rate(row) for row in own), default=None)
    if nearest is not None and other and nearest < SLOWER_NODE * _rate(best):
        yield _wrong(
            m,
            i,
            nearest,
            _rate(best),
            f"memory of node {best.numa_node} is nearer to this GPU than that of node {node}, which the firmware names",
            "certain",
        )
        yield from _link(case, i, _rate(best))
    elif nearest is None and other and _slow(m, i, _rate(best)):
        nodes = sorted({row.numa_node for row in other if row.numa_node is not None})
        wanted = (m.raw(i) or 0.0) * 0.80
        yield _wrong(
            m,
            i,
            _rate(best),
            wanted,
            f"the copies used memory of node {', '.join(map(str, nodes))}, and this GPU is at node {node}",
            "likely",
        )
    elif node is None and _slower_than_others(m, i, best):
        wanted = max(_rate(row) for row in m.measured.host_device)
        yield _wrong(
            m,
            i,
            _rate(best),
            wanted,
            f"all copies used memory of node {best.numa_node}, other GPUs are fast "
            "from there, and this one is fast with its peers: it may be at another node",
            "possible",
        )
    else:
        yield from _link(case, i, _rate(best))


def _slow(m: Machine, i: int, rate: float) -> bool:
    """Below what the link should carry; without a known link, clearly below the best of the machine."""
    raw = m.raw(i)
    if raw is not None:
        return rate < 0.72 * raw
    return rate < SLOWER_NODE * max(_rate(row) for row in m.measured.host_device)


def _slower_than_others(m: Machine, i: int, best: HostDevice) -> bool:
    """Another GPU of the same model is fast from this node, while this GPU's peer copies show a good link."""
    rows = [row for row in m.measured.host_device if row.numa_node == best.numa_node and row.gpu != i]
    alike = [_rate(row) for row in rows if m.gpu(row.gpu).model == m.gpu(i).model]
    matrix = m.measured.p2p_uni_gb_s
    peers = max((value or 0.0 for value in matrix[i]), default=0.0) if matrix else 0.0
    several = m.host.sockets is None or m.host.sockets > 1
    fast_elsewhere = bool(alike) and _rate(best) < SLOWER_NODE * max(alike)
    return best.numa_node is not None and several and fast_elsewhere and peers > _rate(best)


def _wrong(m: Machine, i: int, seen: float, wanted: float, why: str, sure: Confidence) -> Diagnosis:
    return Diagnosis(
        finding(
            RULE.name,
            Verdict.WARN,
            "wrong-numa-placement",
            sure,
            subject=f"gpu:{m.label(i)}",
            seen=seen,
            wanted=wanted,
            why=why,
            fix="measure again from each node: numactl --cpunodebind=N --membind=N",
        )
    )


def _link(case: Case, i: int, rate: float) -> Iterator[Diagnosis]:
    m, raw = case.machine, case.machine.raw(i)
    subjects = {found.subject for found in case.earlier if found.check in LINKS and found.verdict is not Verdict.PASS}
    alike = any(found.check == "same-generation" for found in case.earlier)
    told = alike or bool(subjects & {"host", f"gpu:{m.label(i)}"})
    if raw is None or rate >= WARN_BELOW * raw or told or any(f.cause in FOR_ALL for f in case.earlier):
        return
    if case.rates.proven(i) > rate / 0.85:
        yield _unexplained(m, i, rate, raw)
        return
    found = cause_of(m, i, rate)
    mine = [pair for pair in m.pairs if i in pair and not m.is_nvlink(pair)]
    slow = [pair for pair in case.open(mine) if (peer := case.rates.p2p(pair)) and peer.level in ("low", "bad")]
    sure = found.settled or m.link_told(i)
    yield Diagnosis(
        finding(
            RULE.name,
            Verdict.FAIL if rate < FAIL_BELOW * raw and sure else Verdict.WARN,
            found.cause,
            found.confidence if sure else "possible",
            subject=f"gpu:{m.label(i)}",
            seen=rate,
            wanted=0.80 * raw,
            why=f"copies to and from host memory pass only this GPU's link. "
            f"{found.words[:1].upper() + found.words[1:]}",
            fix="nvidia-smi -q -d PCIE while copying",
            evidence=(f"{rate:.3g} of {raw:g} GB/s raw",),
        ),
        frozenset(slow),
    )


def _unexplained(m: Machine, i: int, rate: float, raw: float) -> Diagnosis:
    return Diagnosis(
        finding(
            RULE.name,
            Verdict.WARN,
            None,
            None,
            subject=f"gpu:{m.label(i)}",
            seen=rate,
            wanted=0.80 * raw,
            why="host copies are slow although more passes this GPU's link between peers: host memory (pageable "
            "buffers, "
            "one memory channel, another NUMA node)",
            fix="measure with pinned memory from each NUMA node: numactl --cpunodebind=N --membind=N",
        )
    )


LINKS = ("link-state", "uplink-state", "slow-device", "same-generation")
FOR_ALL = ("uplink-downgraded",)
RULE = Rule(
    name="host-copies",
    order=54,
    title="Copies between host memory and a GPU",
    looks_at="measured.host_device (by NUMA node), gpus.numa_node, gpus.pcie, peer copies of the same GPU",
    formula="own node < 0.85 x another: the placement or what firmware says is wrong; measured from another node "
    "only and "
    "< 0.72 x raw: wrong node; else below 0.60 x raw warns, below 0.45 x raw fails: the GPU's own link",
    sources=("STAS H200 figures", "NVIDIA/nvbandwidth README", "Azure/azurehpc-health-checks floors"),
    cases=("keras-multi-gpu 7gforce-v2",),
    judge=judge,
)
