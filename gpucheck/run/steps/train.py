"""Training: the steps of ``verify`` and the runs of ``smoke``. torch is imported in the ranks only."""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from gpucheck.checks.training._words import PLACEMENT, distribution
from gpucheck.checks.training.runs import trainings
from gpucheck.host.simulated import machine_directory, surroundings
from gpucheck.knowledge.causes import with_actions
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, named
from gpucheck.model.answer import Clock
from gpucheck.model.facts import Facts, Source
from gpucheck.model.smoke import SmokeFailure, SmokeReport, SmokeResult, Trained
from gpucheck.processes.exhausted import exhausted
from gpucheck.processes.signals import Cut
from gpucheck.run.absent import with_absent
from gpucheck.run.conclusion import conclude
from gpucheck.run.proof import REQUIRED, NotRequired, not_required
from gpucheck.run.step import Outcome, RunStep, in_place_of_a_run
from gpucheck.run.steps import versions
from gpucheck.run.steps.versions import NAME as VERSIONS
from gpucheck.run.steps.versions import refused, version_consistency
from gpucheck.train import (
    gpus_to_train_on,
    has_switch,
    mig_instances,
    real_gpus,
    run_smoke,
    whole_gpus,
)
from gpucheck.train.run_plan import on_all_gpus, plan
from gpucheck.train.spec import SmokeOptions, TrainingFault
from gpucheck.train.strategies import Strategy, all_strategies

SIMULATED_STALL_S = 8.0
SIMULATED_START_S = 600.0  # all hosts of a lab share one machine
# torch from a slow or busy disk and contexts of eight GPUs; on GPUs newer than the build a phase as long, in which the
# driver compiles kernels.
START_S = 240.0
TAGS = frozenset({"training", "measure"})
# Around the deadlines of the runs: every variant of a strategy has its start and a minute, and its ranks some seconds.
DEADLINE_S = 900.0
# Two CPU ranks on two cores, torch imports included: measured from 4 to 11 s, by strategy and by what else runs.
TYPICAL_S = 8.0
VERSIONS_S, VERSIONS_TYPICAL_S = 20.0, 0.05
MODELS_STEP, MODELS = "smoke-models", ("cnn", "gpt")


def training_steps() -> tuple[RunStep, ...]:
    def run(source: Source) -> Outcome:
        return Outcome(version_consistency(source), {})

    tags, about = frozenset({"software", "standard"}), versions.__doc__ or ""
    consistency = RunStep(VERSIONS, tags, run, VERSIONS_S, VERSIONS_TYPICAL_S, about)
    return (consistency, *(_step(strategy) for strategy in all_strategies().values()), _models_step())


def _models_step() -> RunStep:
    strategy = all_strategies()[REQUIRED, "ddp"]
    about = (
        f"Training: {' and '.join(MODELS)} with DistributedDataParallel: do they come to the same result?\n\n"
        f"Source and evaluation as for {strategy.check}, whose name the findings have. By itself: gpucheck smoke "
        f"--framework {REQUIRED} --model {MODELS[-1]}."
    )
    run = partial(_smoke, strategy=strategy, models=MODELS)
    return RunStep(MODELS_STEP, TAGS | {"full"}, run, DEADLINE_S, len(MODELS) * TYPICAL_S, about)


def _step(strategy: Strategy) -> RunStep:
    about = (
        f"Training: {strategy.summary}: does it train, and come to the same result?\n\nSource: a short real run with "
        f"{strategy.framework}, every rank in a process of its own with deadlines from outside. How it is evaluated: "
        f"docs/training.md. By itself: gpucheck smoke --framework {strategy.framework} --strategy {strategy.name}."
    )
    # One step of them explains the finding that all of them may end with.
    also = (PLACEMENT,) if strategy.default and strategy.framework == REQUIRED else ()
    run = partial(_smoke, strategy=strategy)
    return RunStep(strategy.check, TAGS | {strategy.level}, run, DEADLINE_S, TYPICAL_S, about, also)


class Training(NamedTuple):
    """One run of a plan. outcome: None if the versions rule it out; the first finding is then the one that does."""

    strategy: Strategy
    outcome: SmokeResult | SmokeFailure | None
    findings: tuple[Finding, ...]


def train(
    source: Source, runs: Iterable[tuple[Strategy, SmokeOptions]], on_start: Callable[[str], None] = lambda _: None
) -> Iterator[Training]:
    """Yield each run in turn; one whose framework cannot use the GPUs of this host is not started.

    on_start: called with the name of each run.
    """
    blocked = refused(version_consistency(source))
    settled: Strategy | None = None  # its other variants would end the same
    gpus_here, instances = gpus_to_train_on(source), mig_instances(source)
    for strategy, options in on_all_gpus(runs, gpus_here, nvls=has_switch(source)):
        on_start(f"{strategy.framework} {strategy.name} {options.variant}")
        stopped = blocked.get(strategy.framework) if options.visible_devices != "" else None
        if stopped is not None:
            # In place of a training that would end in a CUDA error.
            seen, wanted = f"training on GPUs unknown: {VERSIONS} fails", f"a run with {strategy.framework}"
            unknown = in_place_of_a_run(strategy.check, stopped, seen, wanted)
            yield Training(strategy, None, (stopped, unknown))
            continue
        if strategy == settled:
            continue
        on_gpus = gpus_here > 0 and options.visible_devices != ""
        if instances and options.visible_devices is None and options.nodes is None:
            options = replace(options, mig_uuids=instances)
        start_s = START_S if machine_directory() is None else SIMULATED_START_S
        outcome = run_smoke(replace(options, start_s=start_s, first_s=start_s if on_gpus else 0.0))
        if isinstance(outcome, SmokeFailure) and outcome.kind in ("missing-package", "no-device"):
            settled = strategy
        gpus = real_gpus(source) if options.visible_devices is None else None
        yield Training(strategy, outcome, evaluated(outcome, gpus))


def evaluated(outcome: SmokeResult | SmokeFailure, gpus: int | None = None) -> tuple[Finding, ...]:
    """Return the findings about a run. gpus: as for Trained."""
    used_up = isinstance(outcome, SmokeFailure) and exhausted(outcome.text)
    return tuple(trainings(Facts(trained=(Trained(outcome=outcome, gpus=gpus, exhausted=used_up),))))


INTERRUPTED = "interrupted: the remaining runs unknown"
Smoke = tuple[SmokeReport, tuple[Training, ...]]


def smoke(
    source: Source,
    runs: Iterable[tuple[Strategy, SmokeOptions]],
    on_start: Callable[[str], None],
    keep: Callable[[Smoke], None],
    *,
    every_gpu: bool,
) -> Smoke:
    """Return the report of ``gpucheck smoke``, and the runs with the findings that it lists.

    keep: gets them as soon as they are made: those of the runs that ended when a signal ends the others, too.
    every_gpu: the runs were to use all GPUs of the host.
    """
    clock, done = Clock(), list[Training]()
    cut = Cut(lambda: bool(done))
    with cut:
        for training in train(source, runs, on_start):
            done.append(training)

    def report() -> Smoke:
        if cut.signal is not None:
            missing = Subject(check="smoke").unknown("training.runs-interrupted", INTERRUPTED)
            done.append(Training(done[-1].strategy, None, (missing,)))
        trainings = _with_indexes(source, done)
        findings, _, _ = conclude(chain.from_iterable(training.findings for training in trainings))
        outcomes = tuple(training.outcome for training in trainings if training.outcome is not None)
        facts = source.read("system", "simulation")
        made = SmokeReport(**clock.answer(facts, findings), outcomes=outcomes)
        return (with_absent(made, source) if every_gpu else made), trainings

    return cut.report(report, keep)


def _with_indexes(source: Source, trainings: list[Training]) -> tuple[Training, ...]:
    """Return the runs, each finding with the index of its GPU. NVML is read only if a finding is about a GPU."""
    found = chain.from_iterable(training.findings for training in trainings)
    gpus = source.read("nvml").gpus if any(finding.subject != "host" for finding in found) else ()
    return tuple(training._replace(findings=with_actions(named(training.findings, gpus))) for training in trainings)


def _smoke(source: Source, strategy: Strategy, models: tuple[str, ...] = ()) -> Outcome:
    runs = [
        (each, replace(options, variant=model) if models else options)
        for model in models or (SmokeOptions().model,)
        for each, options in plan(
            strategy.framework, strategy.name, with_fault(SmokeOptions(model=model)), steps=None, capabilities=()
        )
    ]
    trainings = tuple(train(source, runs))
    outcomes = [training.outcome for training in trainings if training.outcome is not None]
    findings = tuple(chain.from_iterable(training.findings for training in trainings))
    if not outcomes:
        return Outcome(findings[-1:], {}, _unproven(strategy, f"{VERSIONS} fails"))
    first = outcomes[0]
    if isinstance(first, SmokeFailure) and first.kind == "missing-package":
        gpus = whole_gpus(source) or sum(device.is_nvidia_gpu for device in source.read("pci").pci)
        return _missing(strategy, first, not_required(source, strategy.framework, gpus))
    return Outcome(findings, _measured(outcomes), _not_on_gpus(source, strategy, outcomes[-1]))


def _unproven(strategy: Strategy, reason: str, where: str = "") -> tuple[str, ...]:
    framework = "" if strategy.framework == REQUIRED else f" with {strategy.framework}"
    return (f"training{framework}{where}, {reason}",) if strategy.trains else ()


def _missing(strategy: Strategy, failure: SmokeFailure, reason: NotRequired | None) -> Outcome:
    (finding,) = evaluated(failure)
    package, framework = failure.missing or strategy.framework, strategy.framework
    subject, values = Subject(check=finding.check), {"framework": framework, "distribution": distribution(package)}
    if reason is not None:
        unproven = _unproven(strategy, reason.text) if framework == REQUIRED else ()
        made = subject.skips(reason.code, finding.seen, finding.wanted, **values)
    else:
        unproven, seen = _unproven(strategy, f"{package} is not installed"), f"training on GPUs unknown: {finding.seen}"
        made = subject.unknown("training.package-needed", seen, f"a run with {framework}", package=package, **values)
    return Outcome((made,), msgspec.to_builtins(failure), unproven)


def _not_on_gpus(source: Source, strategy: Strategy, outcome: SmokeResult | SmokeFailure) -> tuple[str, ...]:
    if not isinstance(outcome, SmokeResult) or source.read("simulation").simulation is not None:
        return ()
    wanted = {"gpus": math.inf, "cpu": 1}.get(outcome.placement, outcome.world_size)
    return _unproven(strategy, outcome.placement_reason, " across GPUs") if whole_gpus(source) >= wanted else ()


def _measured(outcomes: list[SmokeResult | SmokeFailure]) -> dict[str, Any]:
    """The run, or the first of several with the others by their variant; of the checkpoints the last."""
    first, *others = (
        replace(one, checkpoints=one.checkpoints[-1:]) if isinstance(one, SmokeResult) else one for one in outcomes
    )
    measured: dict[str, Any] = msgspec.to_builtins(first)
    return measured | ({"variants": {one.variant: msgspec.to_builtins(one) for one in others}} if others else {})


# As gpucheck.simulator.faults names them -> what the ranks of the real training do.
FAULTS: dict[str, Callable[..., TrainingFault]] = {
    "rank-hang": lambda rank, step: TrainingFault(kind="hang", rank=rank, phase="backward", step=step),
    "rank-dies": lambda rank, step: TrainingFault(kind="die", rank=rank, phase="allreduce", step=step),
    "allreduce-bitflip": lambda rank, step: TrainingFault(kind="flip-bit", rank=rank, step=step),
    "slow-rank": lambda rank, factor: TrainingFault(kind="slow", rank=rank, factor=factor),
}


def with_fault(options: SmokeOptions) -> SmokeOptions:
    """The options with the simulated machine's fault, if it has one; a hang is then not waited for as long."""
    machine = machine_directory()
    for entry in surroundings(machine).training if machine is not None else ():
        parameters = {key: value for key, value in entry.items() if key != "fault"}
        return replace(options, fault=FAULTS[entry["fault"]](**parameters), stall_s=SIMULATED_STALL_S)
    return options
