"""Bus bandwidth of collectives against the links below them, and the transport that NCCL chose."""

from collections.abc import Iterator
from typing import NamedTuple

from gpucheck.diagnose._names import nvlink_of
from gpucheck.diagnose._rule import COLLECTIVES, HANG, Case, Confidence, Diagnosis, Rule, finding, listed, middle
from gpucheck.diagnose.machine import Machine, Pair
from gpucheck.diagnose.rates import SM_FAIL, SM_WARN
from gpucheck.knowledge import nvlink_factor
from gpucheck.model.finding import Finding
from gpucheck.model.observations import Collective
from gpucheck.model.verdict import Verdict
from gpucheck.topology.expected import slower

# Smaller messages are ruled by latency. Source: nccl-tests doc/PERFORMANCE.md and published sweeps.
NVLINK_BYTES, PCIE_BYTES = 1 << 28, 1 << 27
# Part of the slowest link's raw rate that a ring over PCIe keeps: 22 to 41 of 63 (8 GPUs, Gen5), 20.6 of 31.5 (Gen4).
PCIE_RING, PCIE_WARN, PCIE_FAIL = 0.60, 0.25, 0.15


class Goal(NamedTuple):
    """Bus bandwidth of a ring: expected, and below which it warns and fails."""

    gb_s: float
    warn: float
    fail: float
    basis: str


def judge(case: Case) -> Iterator[Diagnosis]:
    """Policy first: the wrong transport explains the number."""
    m = case.machine
    rows = [row for row in m.measured.collectives if row.busbw_gb_s]
    if not m.measured.collectives or HANG in case.explained:
        return
    policy = _policy(case)
    if policy is not None:
        yield policy
    explained = COLLECTIVES in case.explained or policy is not None
    for row in rows:
        yield from _row(case, row, explained)


def _is_shm(row: Collective) -> bool:
    word = (row.transport or "").upper()
    return "SHM" in word or word.startswith("NET")


def _policy(case: Case) -> Diagnosis | None:
    """NCCL copies through shared memory where plain copies go straight and fast."""
    m = case.machine
    rows = [row for row in m.measured.collectives if _is_shm(row)]
    if not rows or COLLECTIVES in case.explained or any(found.verdict is Verdict.FAIL for found in case.earlier):
        return None
    pairs = [pair for pair in m.pairs if m.direct[pair] is True and _worth_using(case, pair)]
    if not pairs:
        return None
    classes = sorted({str(m.classes[pair]) for pair in pairs} - {"None"})
    level = "SYS" if "SYS" in classes else "PHB" if classes == ["PHB"] else "SYS"
    return Diagnosis(
        finding(
            RULE.name,
            Verdict.WARN,
            "nccl-policy",
            "likely",
            subject="host",
            seen=f"NCCL uses {rows[0].transport}",
            wanted="P2P",
            why="plain copies between these GPUs go straight and reach what they should, but NCCL uses P2P only up "
            "to PXB "
            f"by its own rule (here {', '.join(classes) or 'the class is not known'})",
            fix=f"NCCL_P2P_LEVEL={level}, measure both ways, and keep the faster one",
            evidence=[f"direct pairs: {listed(pairs)}"],
        ),
        frozenset([COLLECTIVES]),
    )


def _worth_using(case: Case, pair: Pair) -> bool:
    rate, staged = case.rates.p2p(pair), case.rates.staged(pair)
    if rate is None or rate.level in ("low", "bad"):
        return False
    return staged is None or rate.gb_s > staged.gb_s


def _row(case: Case, row: Collective, explained: bool) -> Iterator[Diagnosis]:
    m, value = case.machine, row.busbw_gb_s or 0.0
    goal = _goal(m, row)
    name = f"{row.op or 'collective'}{f' on {row.ranks} GPUs' if row.ranks else ''}"
    if goal is None or _small(m, row):
        why = "the message is too small to show bandwidth" if goal else "no link rate is known to compare it with"
        yield Diagnosis(
            _finding(
                Verdict.UNKNOWN,
                None,
                None,
                value,
                None,
                f"{name}: {why}",
                "measure 1 GiB, and name the GPU model and the matrix",
            )
        )
    elif value >= goal.warn:
        limit = value < 0.95 * goal.gb_s
        yield Diagnosis(
            _finding(
                Verdict.PASS,
                "expected-limit" if limit else None,
                "likely" if limit else None,
                value,
                goal.gb_s,
                f"{name}: near normal for {goal.basis}",
                "",
            )
        )
    elif not explained and not any(found.verdict is Verdict.FAIL and found.cause for found in case.earlier):
        staged = " NCCL went through shared memory or the network stack." if _is_shm(row) else ""
        verdict = Verdict.FAIL if value < goal.fail else Verdict.WARN
        yield Diagnosis(
            _finding(
                verdict,
                None,
                None,
                value,
                goal.gb_s,
                f"{name}: below {goal.basis}.{staged}",
                "NCCL_DEBUG=INFO names the transport; measure the pairs: gpucheck bandwidth",
            )
        )


def _finding(
    verdict: Verdict, cause: str | None, sure: Confidence | None, seen: float, wanted: float | None, why: str, fix: str
) -> Finding:
    return finding(RULE.name, verdict, cause, sure, subject="host", seen=seen, wanted=wanted, why=why, fix=fix)


def _small(m: Machine, row: Collective) -> bool:
    joined = bool(m.pairs) and all(m.is_nvlink(pair) for pair in m.pairs)
    return row.bytes is not None and row.bytes < (NVLINK_BYTES if joined else PCIE_BYTES)


def _goal(m: Machine, row: Collective) -> Goal | None:
    boards = [model and model.nvlink and not model.nvlink.bridge for model in m.models]
    untold = not any(m.classes.values())
    if m.pairs and (all(m.is_nvlink(pair) for pair in m.pairs) or (untold and all(boards))):
        return _nvlink_goal(m, row)
    if untold and any(model and model.nvlink for model in m.models):
        return None
    raw = [rate for i in range(m.count) if (rate := m.raw(i)) is not None]
    if len(raw) < m.count or not raw or any(m.is_nvlink(pair) for pair in m.pairs):
        return None
    line = min(raw)
    return Goal(line * PCIE_RING, line * PCIE_WARN, line * PCIE_FAIL, f"a ring over PCIe of {line:g} GB/s raw")


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
    links = int(middle(m.links(pair) for pair in m.pairs))
    model = m.models[0]
    board = model.nvlink.links if model and model.nvlink else links
    one_pair = row.ranks == 2 or m.count == 2 or "send" in (row.op or "").lower()
    # Without a matrix a pair may have any part of the links.
    used = links if one_pair and m.count > 2 else max(links, board)
    if not used:
        return None
    line = used * rate.gb_s
    words = f"{used} NVLinks x {rate.gb_s:g} GB/s x {factor:.2f} as kernels reach"
    return Goal(line * factor, line * factor * SM_WARN, line * factor * SM_FAIL, words)


RULE = Rule(
    name="collectives",
    order=75,
    title="Collectives",
    looks_at="measured.collectives (busbw, transport, bytes, ranks), matrix, gpus.model, direct pairs",
    formula="ring on NVLink: links x payload x SM factor, warn below 0.85, fail below 0.70 of it (NVLS may exceed "
    "the link "
    "rate); on PCIe 0.60 x raw, warn below 0.25, fail below 0.15 x raw; SHM beside good direct copies is NCCL's policy",
    sources=("nccl-tests doc/PERFORMANCE.md", "nccl-tests#149", "NVIDIA/nccl src/graph/paths.cc", "STAS"),
    cases=("nccl-tests#331", "RTX 4090 P2P write-up"),
    judge=judge,
)
