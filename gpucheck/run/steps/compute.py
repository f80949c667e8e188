"""The computing step of a run, and the run of ``gpucheck compute``: on all GPUs, in children of their own."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gpucheck.checks import checks_of
from gpucheck.checks.compute.gaps import ENGINE_MISSING
from gpucheck.checks.compute.rates import doubtful
from gpucheck.checks.compute.results import checked
from gpucheck.compute.values import untested
from gpucheck.knowledge.codes import Subject
from gpucheck.model import worst
from gpucheck.model.compute import Computed, Sample
from gpucheck.model.facts import Facts, Source
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
    also = tuple(check.name for check in checks_of(NAME))
    return RunStep(NAME, frozenset({"measure", NAME}), _compute, DEADLINE_S, TYPICAL_S, ABOUT, also)


def compute(source: Source, options: "ComputeOptions", watch: "Watch | None" = None) -> "ComputeReport":
    """Compute and evaluate. Errors: as those of ``measure``."""
    from gpucheck.compute.measure import measure
    from gpucheck.measure.values import Watch

    return measure(source, options, doubtful, lambda report: _evaluated(source, report), watch or Watch())


def burn_in(
    source: Source, options: "BurnInOptions", watch: "Watch", store: "Callable[[ComputeReport], None]"
) -> "ComputeReport":
    """Compute for minutes to days. store, errors: as those of gpucheck.compute.measure.burn_in."""
    from gpucheck.compute import measure

    return measure.burn_in(source, options, doubtful, lambda report: _evaluated(source, report), watch, store)


def _evaluated(source: Source, report: "ComputeReport") -> "ComputeReport":
    computed = Computed(engine=report.engine, devices=report.gpus, shared=report.shared)
    found = (one for check in checks_of(NAME) for one in check.evaluate(Facts(computed=computed)))
    findings, _, counts = conclude((*report.findings, *found), source.read("nvml").gpus)
    values, miss = checked(report.gpus)
    verdict = worst(finding.verdict for finding in findings)
    return replace(report, findings=findings, verdict=verdict, counts=counts, checked_values=values, miss=miss)


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
