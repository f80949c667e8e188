"""A burn-in from its options to its report: a new one, or the rest of one that was cut."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpucheck import __version__
from gpucheck.compute.burnin.limits import ending, limits
from gpucheck.compute.burnin.plan import BurnInPlan, plan
from gpucheck.compute.burnin.run import Session, Shown
from gpucheck.compute.burnin.state import Identity, State, fits, read, write
from gpucheck.compute.measure import METHOD, Chosen, ComputeOptions, chosen_for, findings_of, report_of, with_settings
from gpucheck.compute.values import Opened
from gpucheck.model import NvmlReading, worst
from gpucheck.model.compute import BurnIn, ComputeReport
from gpucheck.model.facts import Source
from gpucheck.processes.signals import TerminatedError

SIMULATED_TICK_S = 3.0
ROUNDS = (
    "each round rests, computes cold, loads memory and matrices, computes hot, then with pauses that make the power "
    "step; digests are compared within a round, between rounds and between GPUs",
    "rates are medians over the rounds; of the readings some of each round are kept",
)


class BurnInOptions(msgspec.Struct, frozen=True, kw_only=True):
    """seconds: of the run. state: its file. max_temperature_c: None is the limit of each GPU."""

    seconds: float
    state: Path
    options: ComputeOptions = ComputeOptions()
    max_temperature_c: float | None = None


def burn_in(
    source: Source, options: BurnInOptions, shown: Shown, keep: Callable[[ComputeReport], None]
) -> ComputeReport:
    """Run it and evaluate it. Raises Unmeasurable, StateError if its file does not fit,
    OSError if it is not writable.

    keep: gets the report as soon as it is made: of what is proven so far when a signal ends the run, too.
    """
    clock = time.monotonic()
    with ExitStack() as stack:
        before = read(options.state)
        chosen = chosen_for(source, replace(options.options, tick_s=SIMULATED_TICK_S))
        stack.callback(chosen.bench.close)
        opened = chosen.bench.open()
        versions = next((one.versions for one in opened if isinstance(one, Opened)), {})
        identity, planned = _identity(source, chosen, versions), plan(options.seconds, small=not chosen.gpus)
        state = _state(options.state, before, identity, planned)
        limited = limits(chosen.gpus, opened, options.max_temperature_c)
        session = Session(chosen.bench, chosen.devices, opened, state, options.state, limited)
        write(options.state, state)  # what cannot be kept is known before hours of load

        def report() -> ComputeReport:
            made = _report(source, chosen, session)
            return replace(made, seconds=round(time.monotonic() - clock, 3))

        try:
            session.run(lambda devices: findings_of(with_settings(devices, chosen.gpus), chosen), shown)
            keep(made := report())
        except (KeyboardInterrupt, TerminatedError):
            keep(report())
            raise
        return made  # and the bench is closed, which takes a while


def _state(path: Path, before: State | None, identity: Identity, planned: BurnInPlan) -> State:
    if before is not None:
        fits(path, before, identity, planned)
        return before
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return State(identity=identity, plan=planned, started=started)


def _identity(source: Source, chosen: Chosen, versions: dict[str, str | None]) -> Identity:
    facts = source.read("system", "nvml", "simulation")
    reading, simulation = facts.nvml, facts.simulation
    return Identity(
        host=facts.system.hostname,
        gpucheck=__version__,
        driver=reading.driver_version if isinstance(reading, NvmlReading) else None,
        gpus=tuple(
            " ".join(part for part in (one.bus_id, one.uuid, one.name) if part) or str(one.index)
            for one in chosen.devices
        ),
        engine=chosen.engine,
        versions=versions,
        simulation=(simulation.profile, *simulation.faults) if simulation else (),
    )


def _report(source: Source, chosen: Chosen, session: Session) -> ComputeReport:
    state = session.state
    devices = with_settings(session.now(), chosen.gpus)
    made = BurnIn(
        planned_seconds=state.plan.seconds,
        seconds=round(state.seconds, 1),
        planned_rounds=state.plan.rounds,
        rounds=state.done,
        sessions=state.sessions,
        ended=state.ended or "interrupted",
        reason=state.reason,
        limits=session.limits.words() if chosen.gpus else (),
        noticed=tuple(state.noticed),
        hottest={
            str(device.index): max(degrees)
            for place, device in enumerate(devices)
            if (degrees := [c for one in state.rounds if (c := one.gpus[place].hottest) is not None])
        },
        state=str(session.path),
    )
    stopped_by = (devices[session.stopped_by[0]], session.stopped_by[1]) if session.stopped_by is not None else None
    findings = (ending(made, stopped_by), *findings_of(devices, chosen))
    lost = session.not_written
    return replace(
        report_of(source, chosen, devices, findings),
        level="burn-in",
        versions=state.identity.versions,
        started=state.started,
        load_seconds=made.seconds,
        burn_in=made,
        method=(*METHOD, *ROUNDS),
        notes=(*chosen.notes, *((f"{session.path}: not written: {lost}",) if lost else ())),
        verdict=worst(finding.verdict for finding in findings),
    )
