"""Near pairs slower than far ones without peer-to-peer: both halves of the copy share one uplink."""

from collections.abc import Iterator

from gpucheck.diagnose._rule import Case, Diagnosis, Rule, finding, listed, middle, span
from gpucheck.diagnose.machine import NEAR, Machine, Pair
from gpucheck.diagnose.rates import Rate
from gpucheck.diagnose.rules.slow_uplink import islands
from gpucheck.model.verdict import Verdict

NEAR_IS_SLOWER = 0.85
LEAST = 0.35


def judge(case: Case) -> Iterator[Diagnosis]:
    """By class where told; else GPUs that are slow exactly among themselves are taken to share an uplink."""
    m = case.machine
    rates = {pair: rate for pair, rate in _staged(case).items() if pair not in case.explained}
    near, certain = [pair for pair in rates if m.classes[pair] in NEAR], True
    if not any(m.classes[pair] for pair in rates):
        near, certain = _cliques(m, rates), False
    far = [pair for pair in rates if pair not in near and (m.classes[pair] is None or m.classes[pair] not in NEAR)]
    if not near or not far:
        return
    low, high = middle(rates[pair].gb_s for pair in near), middle(rates[pair].gb_s for pair in far)
    if not LEAST * high <= low < NEAR_IS_SLOWER * high:
        return
    groups = [group for group in islands(m, near) if len(group) > 1]
    names = ", ".join("{" + ", ".join(map(str, sorted(group))) + "}" for group in groups[:4])
    yield Diagnosis(
        finding(
            RULE.name,
            Verdict.PASS,
            "shared-uplink",
            "likely" if certain else "possible",
            subject="host",
            seen=f"{span(rates[pair].gb_s for pair in near)} GB/s near, {span(rates[pair].gb_s for pair in far)} far",
            why=f"near pairs are slower than far ones because both halves of a staged copy share the uplink of GPUs "
            f"{names}"
            ": up to host memory and down again. P2P would keep them below the switch",
            evidence=[f"near: {listed(near)}"],
        ),
        frozenset(near),
    )


def _staged(case: Case) -> dict[Pair, Rate]:
    """Pairs that have no P2P. Where P2P is in use, how copies would do without it is no news."""
    return {pair: rate for pair, rate in case.rates.all.items() if case.machine.direct[pair] is False}


def _cliques(m: Machine, rates: dict[Pair, Rate]) -> list[Pair]:
    """The slow pairs, when they are exactly the pairs inside groups and the fast ones exactly those between."""
    if not rates or len(rates) < len(m.pairs):
        return []
    most = max(rate.gb_s for rate in rates.values())
    slow = [pair for pair, rate in rates.items() if rate.gb_s < NEAR_IS_SLOWER * most]
    groups = islands(m, slow)
    inside = [pair for pair in m.pairs if any(set(pair) <= group for group in groups)]
    return slow if slow and set(inside) == set(slow) and len(groups) > 1 else []


RULE = Rule(
    name="shared-staging",
    order=42,
    title="Near pairs slower than far ones, staged",
    looks_at="pairs without P2P, matrix; without a matrix, which GPUs are slow among themselves",
    formula="near median between 0.35 and 0.85 of the far median, P2P not in use: one uplink carries the copy twice",
    sources=("nccl#1127", "nccl#1309"),
    cases=("nccl#1127",),
    judge=judge,
)
