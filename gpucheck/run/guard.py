"""A step with its deadline: whatever it does, its outcome is findings and in time."""

import time
from collections.abc import Iterable
from typing import Any

import msgspec

from gpucheck.host.recording import ReplayHost
from gpucheck.host.source import HostSource
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Host, NotRecorded, Verdict
from gpucheck.processes.deadline import StuckError, in_time
from gpucheck.processes.exhausted import exhausted
from gpucheck.run.step import Outcome, Step

# Tags of the steps that copy or train: a recording can only be asked.
NEEDS_HARDWARE = frozenset({"measure", "training"})
# By name or tag of a step, the first that fits.
KINDS = {"collectives": "collectives between GPUs", "training": "training", "compute": "computing on GPUs"}
# After one check got stuck the next ones probably wait for the same thing: 30 of them must not take 30 deadlines.
AFTER_STUCK_S = 2.0


class Guard:
    """Runs the steps of one host. stuck: how many were left behind so far."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.source = HostSource(host)
        self.stuck = 0

    @property
    def hurry(self) -> bool:
        """Whether something hangs, so that deadlines are short."""
        return bool(self.stuck or self.source.stuck)

    def run(self, step: Step) -> Outcome:
        """Return the outcome of a step, or findings with the reason why it has none; each with its duration."""
        if isinstance(self.host, ReplayHost) and step.tags & NEEDS_HARDWARE and not _recorded(step, self.host):
            what = next((KINDS[word] for word in KINDS if word in {step.name, *step.tags}), "copies between GPUs")
            return Outcome((_not_on_a_replay(step),), {}, (f"{what}, not possible on a recording",))
        clock = time.monotonic()
        try:
            if step.needs is None:
                outcome = in_time(step.name, lambda: step.run(self.host), self._patience_s(step))
            else:
                outcome = step.run(self.source)
        except StuckError as error:
            self.stuck += 1
            outcome = Outcome((stuck(step.name, error),), {})
        except NotRecorded as error:
            outcome = Outcome((_not_recorded(step, error),), {})
        except Exception as error:  # one broken step must not lose the report of all the others
            outcome = Outcome((broken(step.name, error),), {})
        seconds = round(time.monotonic() - clock, 3)
        findings = tuple(msgspec.structs.replace(finding, seconds=seconds) for finding in outcome.findings)
        return outcome._replace(findings=findings)

    def _patience_s(self, step: Step) -> float:
        if self.hurry and not step.tags & NEEDS_HARDWARE:
            return min(AFTER_STUCK_S, step.seconds)
        # What NVML may take by its own deadline: a check that waits for it is not stuck.
        return step.seconds + float(getattr(self.host, "patience_s", 0.0))


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


def _recorded(step: Step, host: ReplayHost) -> bool:
    """Return whether the recording contains what the step measures: record --full copies and does not train."""
    return not step.tags & KINDS.keys() and host.recording.full is not None


def _not_on_a_replay(step: Step) -> Finding:
    return Subject(check=step.name).skips("run.step-not-recorded", "a recording", step=step.name)


def _not_recorded(step: Step, error: NotRecorded) -> Finding:
    subject = Subject(check=step.name, evidence=(str(error.args[0]),))
    return subject.unknown("run.reading-not-recorded", "not in the recording", "the host's reading")
