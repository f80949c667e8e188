"""One run of ``verify`` on one host: which steps, in which order, each timed, into one report."""

import time
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Any, Literal

import msgspec

from gpucheck.checks import all_checks
from gpucheck.host.recording import ReplayHost
from gpucheck.model import AnyCheck, Finding, Host, NotRecorded, NvmlReading, Report, Topology, Verdict, worst
from gpucheck.run._attributes import attributes
from gpucheck.run._deadline import StuckError, in_time
from gpucheck.run._measure import measurement_steps
from gpucheck.run._step import Outcome, Step
from gpucheck.run._train import training_steps
from gpucheck.topology import build, identify

__all__ = ["NEEDS_HARDWARE", "Outcome", "Progress", "Step", "all_steps", "select", "verify"]

# Tags of the steps that copy or train: a recording can only be asked.
NEEDS_HARDWARE = frozenset({"measure", "training"})
Progress = Callable[[str], None]


def all_steps() -> tuple[Step, ...]:
    """Every check as a step, then the measurements: cheap truths first, so that a hang costs nothing known."""
    return (*(_check_step(check) for check in all_checks()), *measurement_steps(), *training_steps())


Level = Literal["quick", "standard", "full"]


def select(steps: Iterable[Step], *, level: Level, only: Iterable[str], skip: Iterable[str]) -> tuple[Step, ...]:
    """The steps of a level that --only and --skip leave. Raises LookupError naming what no step is called.

    Tags decide: ``quick`` takes what is tagged so, ``standard`` all but what is tagged ``full``, ``full`` everything.
    What --only names is run whatever the level.
    """
    steps = tuple(steps)
    known = {step.name for step in steps} | {tag for step in steps for tag in step.tags}
    only, skip = set(only), set(skip)
    for word in sorted(only | skip):
        if word not in known:
            raise LookupError(word)

    def wanted(step: Step) -> bool:
        words = {step.name, *step.tags}
        if only:
            return bool(words & only) and not words & skip
        belongs = "quick" in step.tags if level == "quick" else level == "full" or "full" not in step.tags
        return not words & skip and belongs

    return tuple(step for step in steps if wanted(step))


def verify(host: Host, steps: Iterable[Step], *, strict: bool = False, progress: Progress = lambda _: None) -> Report:
    """Run the steps on the host and judge the whole."""
    started, clock = datetime.now(timezone.utc), time.monotonic()
    findings: list[Finding] = []
    measurements: dict[str, dict[str, Any]] = {}
    for step in steps:
        progress(step.name)
        outcome = _timed(step, host)
        findings += outcome.findings
        if outcome.measurements:
            measurements[step.name] = outcome.measurements
    return _report(host, findings, measurements, started, time.monotonic() - clock, strict=strict)


def _check_step(check: AnyCheck) -> Step:
    def run(host: Host) -> Outcome:
        return Outcome(tuple(check.evaluate(check.probe(host))), {})

    return Step(check.name, check.tags, run, check.seconds)


def _timed(step: Step, host: Host) -> Outcome:
    if isinstance(host, ReplayHost) and step.tags & NEEDS_HARDWARE:
        return Outcome((_not_on_a_replay(step),), {})
    clock = time.monotonic()
    try:
        outcome = step.run(host) if step.seconds is None else in_time(step, host, step.seconds + _nvml_s(host))
    except StuckError as error:
        outcome = Outcome((_stuck(step, error),), {})
    except NotRecorded as error:
        outcome = Outcome((_not_recorded(step, error),), {})
    except Exception as error:  # one broken check must not lose the report of all the others
        outcome = Outcome((_broken(step, error),), {})
    seconds = round(time.monotonic() - clock, 3)
    return Outcome(tuple(msgspec.structs.replace(f, seconds=seconds) for f in outcome.findings), outcome.measurements)


def _not_on_a_replay(step: Step) -> Finding:
    return Finding(
        check=step.name,
        verdict=Verdict.SKIP,
        subject="host",
        seen="a recording",
        why="a recording can be asked, but nothing can be copied or trained on it",
        fix=f"on the host itself: gpucheck verify --only {step.name}",
    )


def _not_recorded(step: Step, error: NotRecorded) -> Finding:
    return Finding(
        check=step.name,
        verdict=Verdict.UNKNOWN,
        subject="host",
        seen="not in the recording",
        wanted="the host's answer",
        why=str(error.args[0]),
        fix="record the host again with this gpucheck: gpucheck record -o FILE",
    )


def _nvml_s(host: Host) -> float:
    """What NVML may take by its own deadline: a check that waits for it is not stuck."""
    return float(getattr(host, "deadline_s", 0.0))


def _stuck(step: Step, error: StuckError) -> Finding:
    return Finding(
        check=step.name,
        verdict=Verdict.UNKNOWN,
        subject="host",
        seen=f"no end within {error.seconds:g} s, in {error.call}",
        wanted="a judgement",
        why="a read of the host never came back, as happens when the driver or the kernel is wedged",
        fix="look for processes in state D (ps -eo pid,stat,wchan,args) and read dmesg; reboot the host",
        evidence=error.stack,
    )


def _broken(step: Step, error: Exception) -> Finding:
    return Finding(
        check=step.name,
        verdict=Verdict.UNKNOWN,
        subject="host",
        seen=f"{type(error).__name__}: {error}",
        wanted="a judgement",
        why="the check itself broke, which is a defect of gpucheck and says nothing about the host",
        fix=f"report it with the output of: gpucheck verify --only {step.name} --format json",
        evidence=tuple(_where(error)),
    )


def _where(error: Exception) -> Iterable[str]:
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        yield f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}"
        trace = trace.tb_next


def _report(
    host: Host,
    findings: list[Finding],
    measurements: dict[str, dict[str, Any]],
    started: datetime,
    seconds: float,
    *,
    strict: bool,
) -> Report:
    nvml, system, simulation = host.nvml(), host.system(), host.simulation()
    reading = nvml if isinstance(nvml, NvmlReading) else None
    verdicts = [finding.verdict for finding in findings]
    return Report(
        host=system.hostname,
        simulated=simulation is not None,
        simulation=simulation,
        system=system,
        started=started.isoformat(timespec="seconds"),
        seconds=round(seconds, 3),
        versions={
            "gpucheck": version("gpucheck"),
            "driver": reading.driver_version if reading else host.driver().loaded_version,
            "cuda": reading.cuda_version if reading else None,
            **host.python_packages(["torch", "tensorflow", "nvidia-ml-py"]),
        },
        verdict=worst(verdicts, strict=strict),
        findings=tuple(findings),
        measurements=measurements,
        topology=_topology(host, reading, simulated=simulation is not None) if reading else None,
        counts={verdict.value: verdicts.count(verdict) for verdict in Verdict},
        attributes=attributes(host),
    )


def _topology(host: Host, reading: NvmlReading, *, simulated: bool) -> Topology:
    cpu = identify(host.read_text("/proc/cpuinfo"))
    return build(reading, host.pci(), simulated, cpu=cpu, virtual=host.system().virtual)
