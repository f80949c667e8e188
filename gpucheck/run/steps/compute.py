"""The computing step of a run, and the run of ``gpucheck compute``: on all GPUs, in children of their own."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gpucheck.compute.evaluation import CHECKS, ENGINE_MISSING, RESULTS, checked, evaluate
from gpucheck.compute.values import CUBLAS, untested
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Verdict, worst
from gpucheck.model.compute import Sample
from gpucheck.model.facts import Source
from gpucheck.run.conclusion import conclude
from gpucheck.run.proof import REQUIRED, not_required
from gpucheck.run.step import Outcome, RunStep, numbers_of
from gpucheck.train import mig_instances, whole_gpus

if TYPE_CHECKING:
    from gpucheck.compute.measure import BurnInOptions, ComputeOptions
    from gpucheck.measure.values import Watch
    from gpucheck.model.compute import ComputeReport

NAME = "compute"
CLAIM = "computing on GPUs"
# Around the deadlines of its children: a start and one step that hangs.
DEADLINE_S = 600.0
# The plan: 36 s of load on a GPU with six types, on all GPUs at the same time, and the start of the engine.
TYPICAL_S = 50.0
# Of the readings of one GPU, which are ten a second: the report of a host stays small, a recording has all of them. A
# page draws as many.
MOST_READINGS = 4
ABOUT = """Compute: does every GPU compute right, and as fast as its peers and its clock allow?

Source: torch, or cuBLAS without it, in one child process a GPU, all at the same time: products of matrices in each
type, memory, and operations on equal data that are repeated and must agree, between repeats and between GPUs; NVML is
read meanwhile.
How it is evaluated: docs/compute.md. By itself: gpucheck compute."""


def compute_step() -> RunStep:
    return RunStep(NAME, frozenset({"measure", "compute"}), _compute, DEADLINE_S, TYPICAL_S, ABOUT, CHECKS)


def compute(source: Source, options: "ComputeOptions", watch: "Watch | None" = None) -> "ComputeReport":
    """Compute and evaluate. Errors: as those of ``measure``."""
    from gpucheck.compute.measure import measure
    from gpucheck.measure.values import Watch

    return measure(source, options, watch or Watch(), lambda report: _evaluated(source, report))


def burn_in(
    source: Source, options: "BurnInOptions", watch: "Watch", store: "Callable[[ComputeReport], None]"
) -> "ComputeReport":
    """Compute for minutes to days. store, errors: as those of gpucheck.compute.measure.burn_in."""
    from gpucheck.compute import measure

    return measure.burn_in(source, options, lambda report: _evaluated(source, report), watch, store)


def _evaluated(source: Source, report: "ComputeReport") -> "ComputeReport":
    found = evaluate(report.gpus)
    if report.shared:
        found = tuple(map(_cannot_fail, found))
    if report.engine == CUBLAS:
        # This engine has not run on a GPU yet, and a result may also change on its way to the host.
        found = tuple(
            replace(one, confidence="likely") if one.confidence == "certain" and one.check == RESULTS else one
            for one in found
        )
    findings, _, counts = conclude((*report.findings, *found), source.read("nvml").gpus)
    values, miss = checked(report.gpus)
    verdict = worst(finding.verdict for finding in findings)
    return replace(report, findings=findings, verdict=verdict, counts=counts, checked_values=values, miss=miss)


def _cannot_fail(finding: Finding) -> Finding:
    """With other processes on the GPUs rates are theirs as well; wrong results are not."""
    if finding.verdict is Verdict.FAIL and finding.check in ("compute-matrix", "compute-memory"):
        return Subject(check=finding.check, name=finding.subject, unit=finding.unit, evidence=finding.evidence).finding(
            Verdict.WARN,
            "compute.rate-low-contended",
            finding.seen,
            finding.wanted,
            cause=finding.cause,
            confidence="possible",
            alternatives=finding.alternatives,
            what=finding.values.get("what"),
        )
    return finding


def _compute(source: Source) -> Outcome:
    from gpucheck.compute.measure import ComputeOptions
    from gpucheck.measure.planning.selection import Unmeasurable

    gpus = whole_gpus(source) or len(mig_instances(source))
    if not gpus:
        return Outcome((Subject(check=NAME).skips("compute.no-gpu", "no GPU"),), {})
    try:
        report = compute(source, ComputeOptions())
    except Unmeasurable as error:
        finding = replace(error.finding, check=NAME)
        return Outcome((finding,), {}, (f"{CLAIM}, {finding.seen}",))
    if any(finding.code == ENGINE_MISSING for finding in report.findings):
        reason = not_required(source, REQUIRED, gpus)
        if reason is not None:
            skipped = Subject(check=NAME).skips("compute.engine-not-planned", "not run")
            return Outcome((skipped,), {}, (f"{CLAIM}, {reason.text}, and cuBLAS is not installed",))
    nothing = report.findings and not any(device.repeats for device in report.gpus)
    partly = (f"{CLAIM}, {note}" for note in untested(report.not_tested))
    unproven = (f"{CLAIM}, {report.findings[0].seen}",) if nothing else tuple(partly)
    return Outcome(report.findings, _numbers(report), unproven)


def _numbers(report: "ComputeReport") -> dict[str, Any]:
    # load_seconds follows from what was measured twice, which is no property of a host.
    short = replace(report, gpus=tuple(replace(device, traces=shortened(device.traces)) for device in report.gpus))
    numbers = numbers_of(short, "load_seconds")
    numbers["gpus"] = [{"gpu": device["index"], **device} for device in numbers["gpus"]]
    return numbers


def shortened(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Return at most MOST_READINGS, each for several in a row: their mean clocks and power, and the worst of the rest.

    A reason is kept if at least half of them have it, so that a part of the time stays about the same part.
    """
    each = -(-len(samples) // MOST_READINGS)
    return tuple(_together(samples[at : at + each]) for at in range(0, len(samples), each)) if each > 1 else (*samples,)


def _together(samples: Sequence[Sample]) -> Sample:
    def over(take: Callable[[Iterable[float]], float], name: str) -> float | None:
        values = [value for sample in samples if (value := getattr(sample, name)) is not None]
        return round(take(values), 1) if values else None

    reported = [sample.reasons for sample in samples if sample.reasons is not None]
    counts = Counter(reason for reasons in reported for reason in reasons)
    return Sample(
        at=samples[-1].at,
        sm_clock_mhz=over(fmean, "sm_clock_mhz"),
        memory_clock_mhz=over(fmean, "memory_clock_mhz"),
        power_w=over(fmean, "power_w"),
        temperature_c=over(max, "temperature_c"),
        margin_c=over(min, "margin_c"),
        memory_temperature_c=over(max, "memory_temperature_c"),
        reasons=tuple(reason for reason in counts if 2 * counts[reason] >= len(reported)) if reported else None,
    )
