"""Good one way, not both ways at once: the pair shares what each direction should have for itself."""

from collections.abc import Iterator

from gpucheck.diagnose._rule import Case, Diagnosis, Rule, finding, group_label, listed, span
from gpucheck.diagnose.machine import Pair
from gpucheck.diagnose.rates import Rate, lower
from gpucheck.knowledge import both_ways_part
from gpucheck.model.verdict import Verdict

# A copy engine's small copy takes 1.8 to 4 us directly and 11 to 20 us through host memory (cuda-samples#230).
DIRECT_US = 9.0


def judge(case: Case) -> Iterator[Diagnosis]:
    """One finding for all pairs whose one-way number is right and whose sum is not."""
    low = [rate for pair in case.open(case.rates.all) if (rate := _both(case, pair)) and rate.level in ("low", "bad")]
    if not low:
        return
    m, pairs = case.machine, [rate.pair for rate in low]
    staged = all((lower(m.measured.p2p_latency_us, pair) or 0.0) > DIRECT_US for pair in pairs)
    why = "each direction alone is as it should be, both at once are not"
    if staged:
        why += ", and small copies take as long as through host memory: peer access is granted and not used"
    yield Diagnosis(
        finding(
            RULE.name,
            Verdict.FAIL if any(rate.level == "bad" for rate in low) else Verdict.WARN,
            "false-p2p-grant" if staged else None,
            "likely" if staged else None,
            subject=group_label(m, pairs),
            seen=f"{span(2 * rate.gb_s for rate in low)} GB/s both ways",
            wanted=f"{span(2 * rate.goal.warn * both_ways_part() for rate in low if rate.goal)} GB/s or more",
            why=why,
            fix="measure again with nothing else running: gpucheck bandwidth; "
            + ("nvidia-smi nvlink -e" if m.is_nvlink(pairs[0]) else "lspci -vv on the bridges while copying"),
            evidence=[f"pairs: {listed(pairs)}"],
        ),
        frozenset(pairs),
    )


def _both(case: Case, pair: Pair) -> Rate | None:
    """Half of the sum of a direct pair that is good one way."""
    one, both = case.rates.all[pair], lower(case.machine.measured.p2p_bidir_gb_s, pair)
    if one.way != "uni" or one.level != "good" or both is None or one.goal is None or one.goal.staged:
        return None
    return Rate(pair, both / 2, "bidir", one.goal)


RULE = Rule(
    name="both-ways",
    order=88,
    title="Both directions at once",
    looks_at="p2p_bidir_gb_s of pairs with P2P whose p2p_uni_gb_s is as expected; p2p_latency_us for the cause",
    formula="sum below 2 x 0.80 x the one-way limits of the pair; latency above 9 us: copies are staged",
    sources=("gpucheck/knowledge/links.yml", "cuda-samples#230 for the latency"),
    cases=("DistServe#3 (416 of 552 GB/s: healthy)", "rtx6kpro EPYC 9374F (64 of 78 GB/s: healthy)"),
    judge=judge,
)
