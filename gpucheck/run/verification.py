"""Run ``verify`` on one host: select the steps, run each with a deadline, build one report."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timezone
from typing import Literal

import msgspec

from gpucheck.checks import checks_of
from gpucheck.checks._session import judged
from gpucheck.host.live import READ_S
from gpucheck.model import Check, Finding, Report
from gpucheck.model.facts import Source
from gpucheck.processes.signals import TerminatedError
from gpucheck.run.proof import left_out
from gpucheck.run.report import cut_short, with_findings
from gpucheck.run.report import report as build_report
from gpucheck.run.step import NEEDS_HARDWARE, Guard, Outcome, RunStep, evaluated
from gpucheck.run.steps.health import record_step

__all__ = ["NEEDS_HARDWARE", "Outcome", "RunStep", "all_steps", "left_out", "quick_steps", "select", "verify"]

Progress = Callable[[str], None]
Comparison = Callable[[Report], Iterable[Finding]]
"""Compares a complete report with expectations, or with an earlier report of the host."""

Level = Literal["quick", "standard", "full"]
# A check is one question to NVML or sysfs; measured on a simulated machine of 8 GPUs, NVML's answer included.
CHECK_S = 0.005
# Ending of a need that is read when the run begins.
AT_START = "_at_start"


def quick_steps() -> tuple[RunStep, ...]:
    """Return every check as a step, and the record: all that the level quick may run."""
    return (*(_check_step(check) for check in checks_of("quick")), record_step())


def all_steps() -> tuple[RunStep, ...]:
    """Return the quick steps, then the measurements: cheap steps first, so that a hang loses few results."""
    from gpucheck.run.steps.collectives import collectives_step
    from gpucheck.run.steps.compute import compute_step
    from gpucheck.run.steps.measure import measurement_steps
    from gpucheck.run.steps.network import network_step
    from gpucheck.run.steps.train import training_steps

    return (*quick_steps(), *measurement_steps(), collectives_step(), network_step(), compute_step(), *training_steps())


def select(
    steps: Iterable[RunStep], *, level: Level, only: Iterable[str], skip: Iterable[str], always: Iterable[str] = ()
) -> tuple[RunStep, ...]:
    """Return the steps of a level that --only and --skip select. Raises LookupError with the unknown name.

    Tags decide: ``quick`` takes what is tagged so, ``standard`` all but what is tagged ``full``, ``full`` everything.
    What --only names is run whatever the level. always: names of steps that something else in the run needs.
    """
    steps = tuple(steps)
    known = {step.name for step in steps} | {tag for step in steps for tag in step.tags}
    only, skip, always = set(only), set(skip), set(always)
    for word in sorted(only | skip):
        if word not in known:
            raise LookupError(word)

    def wanted(step: RunStep) -> bool:
        words = {step.name, *step.tags}
        if step.name in always:
            return True
        if only:
            return bool(words & only) and not words & skip
        belongs = "quick" in step.tags if level == "quick" else level == "full" or "full" not in step.tags
        return not words & skip and belongs

    return tuple(step for step in steps if wanted(step))


def verify(
    source: Source,
    steps: Iterable[RunStep],
    *,
    progress: Progress = lambda _: None,
    comparisons: Iterable[Comparison] = (),
    interrupted: Callable[[Report], None] | None = None,
    excluded: Iterable[str] = (),
    window_s: float = 0.0,
) -> Report:
    """Run the steps on a host and return the report, with the findings of the comparisons.

    window_s: least time between the two readings of what is read at the start and at the end.
    excluded: what the caller removed from the level, each with the reason, for the report.
    Where an exception ends it, Ctrl-C too, what the running step started is ended first.
    interrupted: gets the report of what was found so far when a signal ends the run, before its exception goes on.
    """
    started, clock = datetime.now(timezone.utc), time.monotonic()
    guard = Guard(source)
    steps, outcomes = tuple(steps), dict[str, Outcome]()

    def result(interrupted: Finding | None = None) -> Report:
        done = [outcomes[step.name] for step in steps if step.name in outcomes]
        findings = [finding for outcome in done for finding in outcome.findings]
        measured = {name: outcome.measurements for name, outcome in outcomes.items() if outcome.measurements}
        hurry, seconds = guard.hurry or interrupted is not None, time.monotonic() - clock
        whole = build_report(source, findings, measured, started, seconds, hurry=hurry, interrupted=interrupted)
        if interrupted is not None:
            return whole
        not_proven = (*excluded, *(text for outcome in done for text in outcome.not_proven))
        return msgspec.structs.replace(whole, not_proven=tuple(dict.fromkeys(not_proven)))

    try:
        for need in dict.fromkeys(need for step in steps for need in step.early):
            with suppress(Exception):  # the step that needs it reports how this ended
                source.read(need)
        began = time.monotonic()
        for step in sorted(steps, key=lambda step: (bool(step.early), step.waits)):
            progress(step.name)
            if step.early:
                time.sleep(max(0.0, window_s - (time.monotonic() - began)))
            outcomes[step.name] = guard.run(step)
        whole = result()
    except (KeyboardInterrupt, TerminatedError):
        if interrupted is not None:
            left = [step.name for step in steps if step.name not in outcomes]
            interrupted(result(cut_short(left, len(steps))))
        raise
    for compare in comparisons:
        found = tuple(compare(whole))
        if whole.partial is not None:
            found = judged(found, whole.partial, source.read("pci").pci)
        whole = with_findings(whole, (*whole.findings, *found))
    return whole


def _check_step(check: Check) -> RunStep:
    def run(source: Source) -> Outcome:
        return Outcome(tuple(evaluated(check, source)), {})

    early = tuple(need for need in check.needs if need.endswith(AT_START))
    waits = "nvml" in check.needs
    return RunStep(check.name, check.tags, run, READ_S, CHECK_S, check.about, waits=waits, early=early)
