"""A step with its deadline: whatever it does, its outcome is findings and in time."""

import time
from collections.abc import Iterable
from typing import Any

import msgspec

from gpucheck.host.recording import Recording
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, NotRecorded, Verdict
from gpucheck.model.facts import Source
from gpucheck.processes.deadline import StuckError, in_time
from gpucheck.processes.exhausted import exhausted
from gpucheck.run.step import Outcome, RunStep

# Tags of the steps that copy or train: a recording can only be asked.
NEEDS_HARDWARE = frozenset({"measure", "training"})
# By name or tag of a step, the first that fits.
KINDS = {
    "collectives": "collectives between GPUs",
    "training": "training",
    "compute": "computing on GPUs",
    "nic-bandwidth": "network cards",
}


class Guard:
    """Runs the steps of one host. hurry: something hangs, so that deadlines are short."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.hurry = False

    def run(self, step: RunStep) -> Outcome:
        """Return the outcome of a step, or findings with the reason why it has none; each with its duration."""
        source, measures = self.source, bool(step.tags & NEEDS_HARDWARE)
        if measures and isinstance(source, Recording) and not _recorded(step, source):
            what = next((KINDS[word] for word in KINDS if word in {step.name, *step.tags}), "copies between GPUs")
            return Outcome((_not_on_a_replay(step),), {}, (f"{what}, not possible on a recording",))
        clock = time.monotonic()
        try:
            # What is only read has a deadline for each read.
            outcome = in_time(step.name, lambda: step.run(source), step.seconds) if measures else step.run(source)
        except StuckError as error:
            self.hurry = True
            outcome = Outcome((stuck(step.name, error),), {})
        except NotRecorded as error:
            outcome = Outcome((not_recorded(step.name, error),), {})
        except Exception as error:  # one broken step must not lose the report of all the others
            outcome = Outcome((broken(step.name, error),), {})
        seconds = round(time.monotonic() - clock, 3)
        findings = tuple(msgspec.structs.replace(finding, seconds=seconds) for finding in outcome.findings)
        return outcome._replace(findings=findings)


def stuck(name: str, error: StuckError) -> Finding:
    seen = f"no end within {error.seconds:g} s, in {error.call}"
    return Subject(check=name, evidence=error.stack).unknown("run.call-stuck", seen, "a verdict")


def broken(name: str, error: Exception) -> Finding:
    """Return the finding for a check that failed: the error and its place."""
    path = error.filename if isinstance(error, OSError) else None
    code = "run.check-defect"
    values: dict[str, Any] = {"step": name}
    if path:
        code, values["path"] = "run.file-call-rejected", str(path)
    elif isinstance(error, (OSError, MemoryError)):
        code = "run.call-rejected"
    cause = "host-resources" if exhausted(error) else None
    subject, seen = Subject(check=name, evidence=tuple(_where(error))), f"{type(error).__name__}: {error}"
    return subject.finding(Verdict.UNKNOWN, code, seen, "a verdict", cause=cause, **values)


def _where(error: Exception) -> Iterable[str]:
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        yield f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}"
        trace = trace.tb_next


def _recorded(step: RunStep, recording: Recording) -> bool:
    """Return whether the recording contains what the step measures: record --full copies and does not train."""
    return not step.tags & KINDS.keys() and recording.full is not None


def _not_on_a_replay(step: RunStep) -> Finding:
    return Subject(check=step.name).skips("run.step-not-recorded", "a recording", step=step.name)


def not_recorded(name: str, error: NotRecorded) -> Finding:
    subject = Subject(check=name, evidence=(str(error.args[0]),))
    return subject.unknown("run.reading-not-recorded", "not in the recording", "the host's reading")
