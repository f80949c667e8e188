"""What a run is made of, and a step with its deadline: whatever it does, its outcome is findings and in time."""

import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from gpucheck.checks._session import absent
from gpucheck.host.recording import Recording
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding, NotRecorded, Verdict
from gpucheck.model.facts import Source
from gpucheck.processes.deadline import StuckError, in_time
from gpucheck.processes.exhausted import exhausted

# What the report of the run has itself.
OF_THE_RUN = ("findings", "counts", "host", "simulation", "schema")


class Outcome(NamedTuple):
    """What one step found, and the numbers it measured (units in the keys).

    not_proven: what the level includes and this step could not show, each with the reason: ``training, ...``.
    """

    findings: tuple[Finding, ...]
    measurements: dict[str, Any]
    not_proven: tuple[str, ...] = ()


class RunStep(NamedTuple):
    """One thing a run does. Names and tags are what --only and --skip select by.

    seconds: the longest it may take before it is left behind. typical_s: what it takes on a healthy host: measured, or,
    for copies, planned.
    early: needs that are read before the first step; such a step is the last.
    about: what it asks and how it decides, in the form of a check's docstring. also: other names of its findings.
    waits: it needs NVML's answer, which takes as long as all other reads.
    """

    name: str
    tags: frozenset[str]
    run: Callable[[Source], Outcome]
    seconds: float
    typical_s: float
    about: str = ""
    also: tuple[str, ...] = ()
    waits: bool = True
    early: tuple[str, ...] = ()


def evaluated(check: Check, source: Source) -> Iterable[Finding]:
    """Return the findings of a check. Raises what the read of a need raised that has no answer."""
    skipped = absent(check.name, source.read("system").system.virtual)
    if skipped:
        return (skipped,)
    facts = source.read(*check.needs)
    return check.evaluate(source.read(*check.more(facts)))


def numbers_of(report: msgspec.Struct, *omitted: str) -> dict[str, Any]:
    """Return a measured report without these fields, what the report of the run has itself, and empty values."""
    numbers: dict[str, Any] = _without_nothing(report)
    return {name: value for name, value in numbers.items() if name not in (*OF_THE_RUN, *omitted)}


def _without_nothing(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        kept = ((name, default, getattr(value, field)) for field, name, default in _defaults(type(value)))
        # A zero is a result, and so is false.
        return {
            name: _without_nothing(one)
            for name, default, one in kept
            if one or one != default or isinstance(one, bool | int | float)
        }
    if isinstance(value, dict):
        return {key: _without_nothing(one) for key, one in value.items()}
    return [*map(_without_nothing, value)] if isinstance(value, list | tuple) else msgspec.to_builtins(value)


@lru_cache
def _defaults(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    """Return field, name in JSON and default of each."""
    return tuple(
        (
            one.name,
            one.encode_name,
            one.default_factory() if one.default_factory is not msgspec.NODEFAULT else one.default,
        )
        for one in msgspec.structs.fields(kind)
    )


def in_place_of_a_run(check: str, reason: Finding, seen: str, wanted: str) -> Finding:
    """Return UNKNOWN with the words of the reason."""
    return Finding(
        check=check,
        verdict=Verdict.UNKNOWN,
        subject=reason.subject,
        code=reason.code,
        values=reason.values,
        seen=seen,
        wanted=wanted,
        why=reason.why,
        steps=reason.steps,
        fix=reason.fix,
    )


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
        # Of what a step measures, record --full has the copies between GPUs.
        if measures and isinstance(source, Recording) and (step.tags & KINDS.keys() or source.full is None):
            what = next((KINDS[word] for word in KINDS if word in {step.name, *step.tags}), "copies between GPUs")
            skipped = Subject(check=step.name).skips("run.step-not-recorded", "a recording", step=step.name)
            return Outcome((skipped,), {}, (f"{what}, not possible on a recording",))
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


def not_recorded(name: str, error: NotRecorded) -> Finding:
    subject = Subject(check=name, evidence=(str(error.args[0]),))
    return subject.unknown("run.reading-not-recorded", "not in the recording", "the host's reading")


LEVELS = ("quick", "full", "standard")


def asks(about: str) -> str:
    """Return the question of a step, without its title."""
    question = " ".join(about.strip().partition("\n\n")[0].split())
    return question.partition(": ")[2] or question


def level_of(step: RunStep) -> str:
    """Return the first level that runs the step."""
    return next((level for level in LEVELS if level in step.tags), "standard")
