"""All pairs slow alike: every link at the same wrong generation, or something that all paths have in common."""

from collections.abc import Iterator

from gpucheck.diagnose._rule import Case, Confidence, Diagnosis, Rule, finding, middle, span
from gpucheck.diagnose.machine import Pair, rate_of
from gpucheck.diagnose.rates import Rate
from gpucheck.diagnose.rules._links import FITS_FROM, FITS_TO
from gpucheck.diagnose.rules._suspects import on_path
from gpucheck.model.verdict import Verdict

ALIKE = 1.35
PROVEN = 1.15


def judge(case: Case) -> Iterator[Diagnosis]:
    """Pairs below their limit, none of them far from the others, and no pair that is fine."""
    m = case.machine
    rates = {pair: rate for pair, rate in case.rates.all.items() if not m.is_nvlink(pair) or m.direct[pair] is False}
    rates = {pair: rates[pair] for pair in case.open(rates)}
    if not rates or any(rate.level not in ("low", "bad") for rate in rates.values()):
        return
    scores = [rate.ratio or 0.0 for rate in rates.values()]
    if max(scores) > ALIKE * min(scores):
        return
    cause, confidence, words = _why(case, rates)
    told = all(m.link_told(i) for pair in rates for i in pair)
    value, goals = [rate.gb_s for rate in rates.values()], [rate.goal.gb_s for rate in rates.values() if rate.goal]
    verdict = Verdict.FAIL if told and any(rate.level == "bad" for rate in rates.values()) else Verdict.WARN
    for one, sure in zip(cause, confidence, strict=True):
        yield Diagnosis(
            finding(
                RULE.name,
                verdict,
                one,
                sure,
                subject="host" if len(rates) > 1 else m.pair_label(next(iter(rates))),
                seen=f"{span(value)} GB/s on all {len(rates)} measured pairs",
                wanted=f"{span(goals)} GB/s",
                why=words
                + ("" if told else "; what the slots can do was not told, so the boards' data sheet stands in"),
                fix="read gen and width of every GPU while copying: nvidia-smi -q -d PCIE",
                evidence=sorted({rate.goal.basis for rate in rates.values() if rate.goal})[:4],
            ),
            frozenset(rates),
        )


def _why(case: Case, rates: dict[Pair, Rate]) -> tuple[list[str | None], list[Confidence | None], str]:
    m = case.machine
    gpus = sorted({i for pair in rates for i in pair})
    value = middle(rate.gb_s for rate in rates.values())
    staged = all(m.direct[pair] is False for pair in rates)
    links_fine = all(_runs_complete(case, i) or _is_proven(case, i, value) for i in gpus)
    if links_fine and not staged:
        suspects = on_path(m, rates)
        if suspects:
            return (
                [s.cause for s in suspects],
                [s.confidence for s in suspects],
                f"the links are fine; {suspects[0].words}",
            )
    if links_fine:
        return [None], [None], "the links are fine, and nothing that was told says why copies are slow"
    fits = _fits(case, value, gpus[0], staged)
    sure: Confidence = "likely" if fits and all(m.link_told(i) for i in gpus) else "possible"
    words = "all links run alike below what they can: a BIOS setting, risers or a backplane"
    if fits:
        words = f"{value:.3g} GB/s is what {fits} carries; {words}"
    if not staged and sure == "possible" and (m.acs is not False or m.translating is not False):
        words += ". ACS redirect or a translating IOMMU would look alike: compare P2P with staged copies"
    return ["pcie-link-downgraded"], [sure], words


def _is_proven(case: Case, i: int, value: float) -> bool:
    """More passed this link than the slow pairs show, and more than half of what it can do."""
    proven, raw = case.rates.proven(i), case.machine.raw(i)
    return raw is not None and proven >= FITS_FROM * raw and proven > PROVEN * value


def _runs_complete(case: Case, i: int) -> bool:
    pcie = case.machine.gpu(i).pcie
    full_speed = pcie.read == "load" and pcie.gen is not None and pcie.gen == pcie.max_gen
    return full_speed and pcie.width is not None and pcie.width == pcie.max_width


def _fits(case: Case, value: float, i: int, staged: bool) -> str:
    most = case.machine.link(i)
    part = 0.62 if staged else 1.0
    for generation in range((most.max_generation or 1) - 1, 0, -1):
        raw = rate_of(generation, most.max_width)
        if raw and FITS_FROM * raw * part <= value <= FITS_TO * raw * part * (1.15 if staged else 1.0):
            return f"generation {generation} x{most.max_width}"
    return ""


RULE = Rule(
    name="same-generation",
    order=52,
    title="All pairs slow alike",
    looks_at="all PCIe pairs, gpus.pcie, host_device, staged bandwidth, host.iommu, host.acs",
    formula="every pair below its limit and within 1.35 of each other; links proven by more than 1.15 x the value, or "
    "complete under load, turn suspicion to ACS and IOMMU; else the generation whose 0.60 to 0.97 x raw holds the "
    "value",
    sources=("PCIe link rates in gpucheck/knowledge/links.yml", "tinygrad/open-gpu-kernel-modules#6"),
    judge=judge,
)
