"""Wrong data: who delivered it, and what the kind of damage says about why."""

from collections.abc import Iterator

from gpucheck.diagnose._rule import Case, Confidence, Diagnosis, Rule, finding, group_label, listed
from gpucheck.diagnose.machine import Machine, Pair
from gpucheck.diagnose.rules._suspects import TELL_APART
from gpucheck.model.observations import Damage
from gpucheck.model.verdict import Verdict

# What arrives when the write itself got lost or went elsewhere, against what a marginal link or memory does to it.
MEANING: dict[Damage, str] = {
    "untouched": "the destination still holds what it held before: the write never arrived",
    "zeros": "the destination reads zeros: the access was answered by nobody",
    "stale": "the destination holds an earlier round: the write was not visible in time",
    "other-pair": "the destination holds another pair's data: the write was routed or mapped wrongly",
    "shifted": "the data is shifted by a constant: the memory is mapped at a wrong offset",
    "bit-flip": "single bits differ: a marginal link, riser or memory",
}
LOST = ("untouched", "zeros", "stale", None)


def judge(case: Case) -> Iterator[Diagnosis]:
    """Before any bandwidth: a fast link that delivers wrong data is the worst case."""
    m = case.machine
    bad = sorted({(min(pair), max(pair)) for pair in m.measured.integrity_bad_pairs or ()})
    if not bad and m.measured.damage:
        bad = list(m.pairs)
    wrong = sum(collective.wrong or 0 for collective in m.measured.collectives)
    if not bad and not wrong:
        return
    cause, confidence, why = _cause(m, bad)
    damage = m.measured.damage
    if m.count > 2 and bad and group_label(m, bad).startswith("gpu:"):
        why += "; every bad pair has this GPU in common, so look at its link, slot and memory first"
    yield Diagnosis(
        finding(
            RULE.name,
            Verdict.FAIL,
            cause,
            confidence,
            subject=group_label(m, bad) if bad else "host",
            seen=f"wrong data on {len(bad)} of {len(m.pairs)} pairs" if bad else f"{wrong} wrong elements",
            wanted="what was sent",
            why=(f"{MEANING[damage]}. " if damage else "") + why,
            fix=TELL_APART if cause == "iommu-translation" and m.acs is None else "gpucheck bandwidth names the damage",
            evidence=[f"pairs with wrong data: {listed(bad)}"] if bad else [],
        ),
        frozenset(bad),
    )


def _cause(m: Machine, bad: list[Pair]) -> tuple[str, Confidence, str]:
    damage = m.measured.damage
    if damage == "bit-flip":
        return "data-corruption", "likely", "the path works but changes bits: riser, slot, cable, retimer or memory"
    if bad and all(m.is_nvlink(pair) for pair in bad):
        return "data-corruption", "likely", "NVLink needs neither IOMMU nor ACS: a link, switch or GPU is at fault"
    granted = [m.access(pair) for pair in bad]
    if bad and all(access is False for access in granted):
        return "data-corruption", "likely", "peer access is off, so host memory or a GPU's own link is at fault"
    if m.translating and damage in (*LOST, "other-pair"):
        return "iommu-translation", "likely", "the IOMMU translates peer traffic, and the call succeeded all the same"
    if damage in ("other-pair", "shifted") and not any(granted):
        return "data-corruption", "possible", "nothing says whether the driver granted peer access"
    if any(granted) or damage in LOST[:3]:
        words = "the driver's OK is a claim, not a proof: peer access is granted, but what arrives is wrong"
        settled = any(granted) and damage is not None and m.translating is False
        return "false-p2p-grant", "likely" if settled else "possible", words
    return "data-corruption", "possible", "data that arrived differs from data that was sent"


RULE = Rule(
    name="integrity",
    order=10,
    title="Wrong data",
    looks_at="measured.integrity_bad_pairs, measured.damage, wrong elements of collectives; p2p_access, host.iommu",
    formula="any wrong byte is a failure; lost writes with a translating IOMMU are its doing, with access granted a "
    "false grant; single bits are a link or memory",
    sources=("pytorch#84803", "open-gpu-kernel-modules#1257", "nccl-tests#117", "nccl-tests#172"),
    cases=("club-3090#922",),
    judge=judge,
)
