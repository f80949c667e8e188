"""Collectives against the links below them, and the transport that NCCL chose."""

from collections.abc import Iterator
from statistics import median
from typing import Any, NamedTuple

from gpucheck.checks._case import Case, listed, observed
from gpucheck.checks._healthy import direct, level
from gpucheck.checks._machine import Machine, Pair, nvlink_of
from gpucheck.checks.host.environment import slows_collectives
from gpucheck.diagnose.rules.copies import NO_PATH
from gpucheck.diagnose.suspects import hang_of
from gpucheck.knowledge import nvlink_factor
from gpucheck.knowledge.codes import Subject
from gpucheck.model.diagnosis.observations import Collective
from gpucheck.model.finding import Confidence, Finding, Verdict
from gpucheck.printable import counted
from gpucheck.topology.expected import slower
from gpucheck.topology.wiring import islands

CHECK = "collectives-bandwidth"
# A message of S bytes reaches B S / (S + B t), where starting costs t. NCCL counts a fixed part and one for each
# of the 2 (ranks - 1) steps of a ring (NVIDIA/nccl src/graph/tuning.cc). Published all_reduce sweeps over 8 GPUs give
# t = 60 us (H200: 467.6 GB/s at 1 GiB, 480.0 at 8 GiB), 70 to 125 us (A100), 80 us (H100: 419.5 at 256 MiB, 470.7 at
# 2 GiB) and 210 us (B200: 723.3 at 1 GiB, 845.7 at 16 GiB), so at most 15 us a step. "256M is too small to reach peak
# bandwidth" (NVIDIA in nccl-tests#212). The limit is that of messages of which starting takes less than a twentieth.
# A message that is slower than with twice the longest published start is not slow because it is small.
STEP_SECONDS, STARTING, SLOW_START = 15e-6, 0.05, 2
LEAST_BYTES = 1 << 27  # below it latency rules on every link: nccl-tests doc/PERFORMANCE.md and published sweeps
# Part of the slowest link's raw rate that a ring over PCIe keeps: 0.65 to 0.74 with P2P, on one socket and across two
# (rtx6kpro, the P2P-on-4090 write-up), 0.49 of nine A30 at 128 MiB, 0.25 to 0.46 through host memory.
PCIE_RING, PCIE_NEAR, PCIE_FAR, PCIE_STAGED_MOST, PCIE_STAGED, PCIE_FAIL = 0.65, 0.50, 0.42, 0.46, 0.22, 0.15
# Kernels carry 128-byte payloads and NCCL's protocol costs another tenth: 72 of 100 GB/s is right (nccl-tests#331).
SM_WARN, SM_FAIL, NEAR_NORMAL = 0.82, 0.70, 0.95
# NCCL uses fewer channels between two ranks than for a ring: 180 GB/s of 300 is a healthy plateau (nccl-tests#268).
POINT_TO_POINT = 0.60
# Sums in the switch (NVLS) reach 1.3 of a healthy ring: 480 of 369 GB/s. No published result reaches twice as much.
BEYOND, MOST_LINKS = 2.0, 18
# Below what the links carry, by whether NCCL copied through the host, and whether another finding names the cause.
BELOW = {
    (False, False): "collectives.below-links",
    (False, True): "collectives.below-links-explained",
    (True, False): "collectives.below-links-staged",
    (True, True): "collectives.below-links-staged-explained",
}
MOST_RANKS = 16  # of one host; what more ranks reach is the network's


class Goal(NamedTuple):
    """Bus bandwidth of a ring: expected, and below which it warns and fails, GB/s."""

    gb_s: float
    warn: float
    fail: float
    basis: str
    vague: float = 0.0  # the path is not known: from here to warn, some healthy machine has this number


def rule(case: Case) -> Iterator[Finding]:
    """Policy first: the wrong transport explains the number. A hang leaves the numbers as they are."""
    m = case.machine
    if not m.measured.collectives:
        return
    checked = [row.wrong for row in m.measured.collectives if row.wrong is not None]
    if checked and not any(checked):
        yield Subject(check="collectives-results").passes(f"{counted(len(checked), 'collective')} exact")
    policy = list(_policy(case))
    yield from policy
    for row in m.measured.collectives:
        if row.busbw_gb_s:
            yield _row(case, row, row.busbw_gb_s, explained=bool(policy) or slows_collectives(m, row))


def _is_shm(row: Collective) -> bool:
    word = (row.transport or "").upper()
    return "SHM" in word or word.startswith("NET")


def _policy(case: Case) -> Iterator[Finding]:
    """NCCL copies through shared memory where plain copies go straight and fast."""
    m = case.machine
    rows = [row for row in m.measured.collectives if _is_shm(row) and not slows_collectives(m, row)]
    if not rows or case.has_failed or hang_of(m):
        return
    pairs = [pair for pair in m.granted_over_pcie if _worth_using(case, pair)]
    if not pairs:
        return
    classes = sorted({str(m.classes[pair]) for pair in pairs} - {"None"})
    values = {"classes": classes or None, "level": "PHB" if classes == ["PHB"] else "SYS"}
    host = observed("collectives-transport", "host", f"direct pairs: {listed(pairs)}")
    seen = f"NCCL uses {rows[0].transport}"
    yield host.warns("collectives.p2p-not-chosen", seen, "P2P", **values)


def _worth_using(case: Case, pair: Pair) -> bool:
    m = case.machine
    rate, staged = min(m.one_way(pair), default=None), min(m.one_way(pair, staged=True), default=None)
    row = level(rate, direct(m, pair)) if rate else None
    return bool(row and row.is_healthy) and pair not in case.slow and (staged is None or (rate or 0.0) > staged)


def _row(case: Case, row: Collective, value: float, *, explained: bool) -> Finding:
    m, goal = case.machine, _goal(case.machine, row)
    name = f"{row.op or 'collective'}{f' on {row.ranks} GPUs' if row.ranks else ''}"
    if goal is None:
        return observed(CHECK).unknown("collectives.rate-unknown", value, collective=name)
    boards = (MOST_LINKS * rate.gb_s for gpu in m.seen.gpus if (rate := nvlink_of(gpu.model)))
    if value > BEYOND * max((goal.gb_s, *boards)):
        return observed(CHECK).unknown("collectives.above-links", value, goal.gb_s, collective=name, basis=goal.basis)
    if value >= goal.warn:
        limit: Confidence | None = "likely" if value < NEAR_NORMAL * goal.gb_s else None
        values = {"cause": "expected-limit" if limit else None, "collective": name, "basis": goal.basis}
        return observed(CHECK).explains("collectives.near-normal", value, goal.gb_s, confidence=limit, **values)
    small = row.bytes is not None and row.bytes < _least_bytes(m, row, goal)
    if small and (found := _small(case, row, value, goal, name)) is not None:
        return found
    by_product = m.is_geforce and value < goal.vague and not any(m.access.values()) and not case.has_failed
    if value >= NO_PATH and (_is_staged(m, row) or by_product):
        return _through_host(m, value, {"collective": name, "basis": goal.basis})
    if value >= goal.vague > 0 and not case.has_failed and not explained:
        verdict, code = Verdict.UNKNOWN, "collectives.path-unknown"
    elif explained and value >= NO_PATH:
        verdict, code = Verdict.PASS, "collectives.setting-explains"
    else:
        verdict = Verdict.WARN if case.has_failed or small or value >= goal.fail else Verdict.FAIL
        code = BELOW[_is_shm(row), case.has_failed]
    return observed(CHECK).finding(verdict, code, value, goal.gb_s, collective=name, basis=goal.basis)


def _through_host(m: Machine, value: float, values: dict[str, Any]) -> Finding:
    """A ring through host memory: slow is UNKNOWN, since a link that was not read may be narrow."""
    line = min((link.gb_s for link in m.raw if link), default=0.0)
    if value >= PCIE_STAGED * line:
        return observed(CHECK).explains("collectives.through-host", value, **values)
    usual = f"{PCIE_STAGED * line:.1f} to {PCIE_STAGED_MOST * line:.1f}"
    return observed(CHECK).unknown("collectives.through-host-slow", value, usual=usual, **values)


def _least_bytes(m: Machine, row: Collective, goal: Goal) -> int:
    """The size from which on the links limit a collective, and starting does not."""
    return max(LEAST_BYTES, int(goal.gb_s * 1e9 * STEP_SECONDS * _steps(m, row) * (1 / STARTING - 1)))


def _steps(m: Machine, row: Collective) -> int:
    """Steps of a ring."""
    return 2 * max(1, (row.ranks or m.count) - 1)


def _small(case: Case, row: Collective, value: float, goal: Goal, name: str) -> Finding | None:
    """A small message proves nothing of the links; a larger one over as many GPUs may have shown what they carry.

    None for one that is too slow for its size, too.
    """
    m, size = case.machine, row.bytes or 0
    values: dict[str, Any] = {"collective": name, "mib": size >> 20, "least_mib": _least_bytes(m, row, goal) >> 20}
    for other in m.measured.collectives:
        links = _goal(m, other) if (other.ranks or 0) >= (row.ranks or 0) else None
        if links and (other.busbw_gb_s or 0.0) >= links.warn:
            values |= {"other": other.op or "another collective", "other_gb_s": round(other.busbw_gb_s or 0.0, 1)}
            return observed(CHECK).explains("collectives.message-small-links-shown", value, **values)
    reached = size / (size + SLOW_START * STEP_SECONDS * _steps(m, row) * goal.gb_s * 1e9)
    if size >= LEAST_BYTES and value < goal.warn * reached:
        return None
    return observed(CHECK).unknown("collectives.message-small", value, **values)


def _is_staged(m: Machine, row: Collective) -> bool:
    """More GPUs than any island with peer access has: a ring over them goes through host memory somewhere."""
    known = bool(m.pairs) and None not in m.access.values()
    return known and max(map(len, islands(range(m.count), m.granted))) < (row.ranks or m.count)


def _goal(m: Machine, row: Collective) -> Goal | None:
    if (row.ranks or 0) > max(m.count, MOST_RANKS) or (m.host.virtual and not any(m.classes.values())):
        return None
    boards = [model and model.nvlink and not model.nvlink.bridge for model in m.models]
    unknown = not any(m.classes.values())
    if m.pairs and (all(map(m.links, m.pairs)) or (unknown and all(boards))):
        return _nvlink_goal(m, row)
    refused = bool(m.pairs) and all(m.access[pair] is False for pair in m.pairs)
    if unknown and not refused and any(model and model.nvlink for model in m.models):
        return None
    joined = [pair for pair in m.pairs if m.links(pair)]
    raw = [link.gb_s for link in m.raw if link]
    if len(raw) < m.count or not raw or (joined and len(joined) * 2 > m.count):
        return None
    line = min(raw)
    if joined and row.ranks == 2 and (row.busbw_gb_s or 0.0) > line:
        return _nvlink_goal(m, row)
    near = [m.is_near(pair) for pair in m.pairs if m.classes[pair]]
    warn = PCIE_NEAR if all(near) else PCIE_FAR
    vague = 0.0 if len(near) == len(m.pairs) and (m.granted or refused) else line * PCIE_STAGED
    return Goal(line * PCIE_RING, line * warn, line * PCIE_FAIL, f"a ring over PCIe of {line:g} GB/s raw", vague)


def _nvlink_goal(m: Machine, row: Collective) -> Goal | None:
    """A pair uses the links between the two; a ring over all GPUs uses all links of each."""
    rates = [nvlink_of(gpu.model) for gpu in m.seen.gpus]
    rate = slower(rates[0], rates[-1]) if len(set(rates)) == 1 else None
    if rate is None:
        return None
    try:
        factor = nvlink_factor(rate.generation, "sm")
    except LookupError:
        return None
    links = int(median([m.links(pair) for pair in m.pairs if m.links(pair)] or [0]))
    model = m.models[0]
    board = model.nvlink.links if model and model.nvlink else links
    one_pair = row.ranks == 2 or m.count == 2 or "send" in (row.op or "").lower()
    # Without a matrix a pair may have any part of the links.
    used = links if one_pair and m.count > 2 else max(links, board)
    if not used:
        return None
    line = used * rate.gb_s
    words = f"{used} NVLinks x {rate.gb_s:g} GB/s x {factor:.2f} as kernels reach"
    if "send" in (row.op or "").lower():
        return Goal(line * factor, line * POINT_TO_POINT * SM_WARN, 0.0, words)
    return Goal(line * factor, line * factor * SM_WARN, line * factor * SM_FAIL, words)
