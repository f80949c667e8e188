"""One GPU slow with every peer, while its peers are fast among themselves: its own link, slot or chipset."""

from collections.abc import Iterator

from gpucheck.diagnose._rule import Case, Diagnosis, Rule, finding, listed
from gpucheck.diagnose.machine import Machine, Pair
from gpucheck.diagnose.rates import Rate, upper
from gpucheck.diagnose.rules._links import cause_of
from gpucheck.model.verdict import Verdict

# Against the best of the pairs of its class that do without it.
SLOW, VERY_SLOW, NOTEWORTHY = 0.85, 0.70, 0.95


def judge(case: Case) -> Iterator[Diagnosis]:
    """Compared within each path class, so that distance is not taken for a slow card."""
    m = case.machine
    rates = _comparable(case)
    slow = _slow(m, rates, SLOW)
    for i in slow:
        yield _slow_gpu(case, i, rates, slow)
    noteworthy = [i for i in _slow(m, rates, NOTEWORTHY) if i not in slow] if not slow else []
    if len(noteworthy) * 2 < m.count:
        for i in noteworthy:
            yield _slower_gpu(case, i, rates)


def _comparable(case: Case) -> dict[Pair, Rate]:
    """PCIe pairs, measured one way where any is, that nothing explains yet."""
    m = case.machine
    rates = {pair: case.rates.all[pair] for pair in case.open(case.rates.all)}
    rates = {pair: rate for pair, rate in rates.items() if not m.is_nvlink(pair) or m.direct[pair] is False}
    ways = {rate.way for rate in rates.values()}
    return {pair: rate for pair, rate in rates.items() if rate.way == ("uni" if "uni" in ways else "bidir")}


def _score(rate: Rate, whole: bool) -> float:
    """Part of the expectation where every pair has one, else the bare number."""
    return (rate.ratio or 0.0) if whole else rate.gb_s


def _slow(m: Machine, rates: dict[Pair, Rate], limit: float) -> list[int]:
    whole = all(rate.goal is not None for rate in rates.values())
    return [i for i in range(m.count) if _is_slow(m, i, rates, whole, limit)]


def _is_slow(m: Machine, i: int, rates: dict[Pair, Rate], whole: bool, limit: float) -> bool:
    compared = False
    for cls in {m.classes[pair] for pair in rates if i in pair}:
        alike = {pair: _score(rate, whole) for pair, rate in rates.items() if m.classes[pair] == cls}
        mine = max(score for pair, score in alike.items() if i in pair)
        others = max((score for pair, score in alike.items() if i not in pair), default=None)
        if others is None:
            # Nobody else is that far: only its own expectation can tell.
            if limit > SLOW or all(rates[p].level not in ("low", "bad") for p in alike):
                return False
        elif mine >= limit * others:
            return False
        else:
            compared = True
    return compared


def _best(i: int, rates: dict[Pair, Rate]) -> Rate:
    return max((rate for pair, rate in rates.items() if i in pair), key=lambda rate: rate.gb_s)


def _slow_gpu(case: Case, i: int, rates: dict[Pair, Rate], slow: list[int]) -> Diagnosis:
    m = case.machine
    best = _best(i, rates)
    others = max(rate.gb_s for pair, rate in rates.items() if not set(pair) & set(slow) or i not in pair)
    top = max(upper(m.measured.p2p_uni_gb_s, pair) or rates[pair].gb_s for pair in rates if i in pair)
    reached = max(top, case.rates.proven(i))
    found = cause_of(m, i, reached)
    mine = [pair for pair in rates if i in pair]
    part = min(1.0, top / others)
    unlike = m.gpu(i).model is None or any(m.gpu(j).model != m.gpu(i).model for j in range(m.count))
    sure = found.settled or best.goal is not None or not unlike or part < 0.5
    return Diagnosis(
        finding(
            RULE.name,
            Verdict.FAIL if part < VERY_SLOW and sure else Verdict.WARN,
            found.cause,
            found.confidence,
            subject=f"gpu:{m.label(i)}",
            seen=best.gb_s,
            wanted=best.goal.gb_s if best.goal and best.level != "good" else others,
            why=f"slow with all {len(mine)} peers at about 1/{max(1, round(1 / part))} of the others, which are "
            f"fast among "
            f"themselves: a cause of this device, not of the path. {found.words[:1].upper() + found.words[1:]}",
            fix=f"lspci -vv -s {m.gpu(i).bus_id or '<bus id>'} | grep -e LnkCap -e LnkSta while copying",
            evidence=[f"best of {listed(mine)}: {best.gb_s:.3g} GB/s; best without it: {others:.3g} GB/s"],
        ),
        frozenset(mine),
    )


def _slower_gpu(case: Case, i: int, rates: dict[Pair, Rate]) -> Diagnosis:
    best = _best(i, rates)
    others = max(rate.gb_s for pair, rate in rates.items() if i not in pair)
    return Diagnosis(
        finding(
            RULE.name,
            Verdict.PASS,
            "expected-limit" if best.level == "good" else None,
            "possible" if best.level == "good" else None,
            subject=f"gpu:{case.machine.label(i)}",
            seen=best.gb_s,
            wanted=others,
            why=f"{1 - best.gb_s / others:.0%} slower with every peer, near and far: a cause of this device (its "
            f"link, root "
            "port or slot), not of the path; within what its link should reach",
        )
    )


RULE = Rule(
    name="slow-device",
    order=45,
    title="One GPU slow with every peer",
    looks_at="every PCIe pair by GPU, gpus.pcie, gpus.path, host_device",
    formula="in every path class the GPU's best pair < 0.85 x the best pair without it; which link it is comes from "
    "the "
    "registers, else from the generation and width whose 0.60 to 0.97 x raw holds the number",
    sources=("tinygrad/open-gpu-kernel-modules#6", "club-3090#895", "PCIe link rates in gpucheck/knowledge/links.yml"),
    cases=("keras-multi-gpu 7gforce-v2", "rtx6kpro pcie-bandwidth, one card 10 % slower (healthy)"),
    judge=judge,
)
