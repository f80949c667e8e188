"""The training steps of a run. torch is imported when a step runs, in the children that train."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from gpucheck.host.simulated import machine_directory
from gpucheck.model import Finding, Host, Verdict
from gpucheck.run import _versions
from gpucheck.run._step import Outcome, Step
from gpucheck.run._versions import NAME as VERSIONS
from gpucheck.run._versions import refused, version_truth
from gpucheck.train import is_settled, judge, real_gpus, run_smoke
from gpucheck.train.outcome import SmokeFailure, SmokeResult
from gpucheck.train.spec import Fault, SmokeOptions
from gpucheck.train.strategies import Strategy, all_strategies
from gpucheck.train.wish import plan

SIMULATED_STALL_S = 8.0
TAGS = frozenset({"training", "measure"})
# Around the deadlines of the runs: every variant of a strategy has a minute, and its ranks some seconds to go.
DEADLINE_S = 600.0
# Two CPU ranks on two cores, torch imports included: measured from 4 to 11 s, by strategy and by what else runs.
TYPICAL_S = 8.0
VERSIONS_S, VERSIONS_TYPICAL_S = 20.0, 0.05


def training_steps() -> tuple[Step, ...]:
    """Version truth, then one step a strategy."""
    versions = Step(
        VERSIONS,
        frozenset({"software", "standard"}),
        lambda host: Outcome(version_truth(host), {}),
        VERSIONS_S,
        VERSIONS_TYPICAL_S,
        _versions.__doc__ or "",
    )
    return (versions, *(_step(strategy) for strategy in all_strategies().values()))


def _step(strategy: Strategy) -> Step:
    def run(host: Host) -> Outcome:
        return _smoke(host, strategy)

    return Step(strategy.check, TAGS | {strategy.level}, run, DEADLINE_S, TYPICAL_S, _about(strategy))


def _about(strategy: Strategy) -> str:
    return (
        f"Training: {strategy.summary}: does it train, and come to the same result?\n\nSource: a short real run with "
        f"{strategy.framework}, every rank in a process of its own with deadlines from outside. How it is judged: "
        f"docs/training.md. By itself: gpucheck smoke --framework {strategy.framework} --strategy {strategy.name}."
    )


def _smoke(host: Host, strategy: Strategy) -> Outcome:
    stopped = refused(version_truth(host)).get(strategy.framework)
    if stopped is not None:
        return Outcome((not_trained(strategy, stopped),), {})
    options = with_fault(SmokeOptions())
    runs = plan(strategy.framework, strategy.name, options, steps=None, capabilities=())
    outcomes = []
    for _, chosen in runs:
        outcomes.append(run_smoke(chosen))
        if is_settled(outcomes[-1]):
            break
    findings = tuple(finding for outcome in outcomes for finding in judge(outcome, gpus=real_gpus(host)))
    return Outcome(findings, _measured(outcomes))


def _measured(outcomes: list[SmokeResult | SmokeFailure]) -> dict[str, Any]:
    """The run, or the first of several with the others by their variant."""
    first, *others = outcomes
    more = {o.variant: msgspec.to_builtins(o) for o in others}
    measured: dict[str, Any] = msgspec.to_builtins(first)
    return measured | ({"variants": more} if more else {})


def not_trained(strategy: Strategy, stopped: Finding) -> Finding:
    """In place of a training that would end in a CUDA error."""
    return Finding(
        check=strategy.check,
        verdict=Verdict.SKIP,
        subject=stopped.subject,
        seen="not trained",
        wanted=strategy.summary,
        why=f"{VERSIONS} fails: {stopped.why}",
        fix=stopped.fix,
    )


def simulated_fault() -> Fault | None:
    """The training fault of the simulated machine, if there is one: made in the ranks of the real training."""
    directory = machine_directory()
    return next(_faults(directory), None) if directory is not None else None


def _faults(directory: Path) -> Iterator[Fault]:
    try:
        surroundings = msgspec.json.decode((directory / "surroundings.json").read_bytes(), type=dict[str, object])
    except FileNotFoundError:
        return
    for entry in msgspec.convert(surroundings.get("training", []), type=list[dict[str, int | str]]):
        parameters = {key: value for key, value in entry.items() if key != "fault"}
        make = FAULTS.get(str(entry["fault"]))
        if make is not None:
            yield make(**parameters)


# As gpucheck.simulator.faults names them -> what the ranks do.
FAULTS: dict[str, Callable[..., Fault]] = {
    "rank-hang": lambda rank, step: Fault(kind="hang", rank=rank, phase="backward", step=step),
    "rank-dies": lambda rank, step: Fault(kind="die", rank=rank, phase="allreduce", step=step),
    "allreduce-bitflip": lambda rank, step: Fault(kind="flip-bit", rank=rank, step=step),
    "slow-rank": lambda rank, factor: Fault(kind="slow", rank=rank, factor=factor),
}


def with_fault(options: SmokeOptions) -> SmokeOptions:
    """The options with the simulated machine's fault, if it has one; a hang is then not waited for as long."""
    fault = simulated_fault()
    return options if fault is None else replace(options, fault=fault, stall_s=SIMULATED_STALL_S)
