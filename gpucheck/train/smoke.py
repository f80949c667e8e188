"""One smoke test from wish to outcome: find its program and framework, run it, put the ranks' reports together."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from statistics import fmean

from gpucheck.model import Host
from gpucheck.train.blame import blame
from gpucheck.train.environment import rank_environment
from gpucheck.train.outcome import RankReport, SmokeFailure, SmokeResult, Straying
from gpucheck.train.spec import SmokeOptions
from gpucheck.train.supervisor import Ending, supervise

# One more way to train is one module with run(spec, place, progress), and one row here.
PROGRAMS = {("torch", "ddp"): "gpucheck.train.torch_ddp"}
DEFAULTS = SmokeOptions()
PACKAGES = {"torch": ("torch", "numpy")}


def run_smoke(options: SmokeOptions, environment: Mapping[str, str] | None = None) -> SmokeResult | SmokeFailure:
    """Run it. The framework is imported by the ranks only.

    environment: what the ranks inherit after cleaning, this process's own by default. KeyboardInterrupt and SystemExit
    pass through when the ranks are gone.
    """
    ranks, removed = rank_environment(os.environ if environment is None else environment)
    for package in PACKAGES[options.framework]:
        if find_spec(package) is None:
            return _not_run(options, "missing-package", f"package {package} is not installed", removed, missing=package)
    program = PROGRAMS[options.framework, options.strategy]
    try:
        ending = supervise(program, options, ranks)
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        return _not_run(options, "timeout-start", f"the ranks could not be started: {error.strerror}{place}", removed)
    return conclude(ending, options, removed)


def conclude(ending: Ending, options: SmokeOptions, removed: tuple[str, ...]) -> SmokeResult | SmokeFailure:
    """The result of a run that finished, or who is to blame for one that did not."""
    if ending.reason != "finished":
        return blame(ending, options, removed)
    reports = tuple(end.report for end in ending.ranks if end.report is not None)
    return merge(reports, options, ending, removed)


def _not_run(
    options: SmokeOptions, kind: str, detail: str, removed: tuple[str, ...], missing: str | None = None
) -> SmokeFailure:
    return SmokeFailure(
        framework=options.framework,
        strategy=options.strategy,
        kind=kind,  # type: ignore[arg-type]
        detail=detail,
        world_size=options.world_size,
        steps=options.steps,
        phase="start",
        missing=missing,
        seconds=0.0,
        environment_removed=removed,
    )


def merge(
    reports: tuple[RankReport, ...], options: SmokeOptions, ending: Ending, removed: tuple[str, ...]
) -> SmokeResult:
    """The result of a run whose ranks all finished; reports in rank order, rank 0's with the reference."""
    first = reports[0]
    reference = first.reference
    losses = tuple(_mean(step) for step in zip(*(report.losses for report in reports), strict=True))
    phases = {phase: None for report in reports for phase in report.seconds}
    slowest = {phase: round(max(r.seconds.get(phase, 0.0) for r in reports), 4) for phase in phases}
    return SmokeResult(
        framework=options.framework,
        strategy=options.strategy,
        model=first.model,
        backend=first.backend,
        placement=first.placement,
        placement_reason=first.placement_reason,
        devices=tuple(report.device for report in reports),
        device_names=tuple(report.device_name for report in reports),
        bus_ids=tuple(report.bus_id for report in reports),
        world_size=first.world_size,
        steps=options.steps,
        batch_per_rank=options.batch_per_rank,
        seed=options.seed,
        losses=losses,
        loss_first=losses[0],
        loss_last=losses[-1],
        not_a_number=tuple(_strays(reports)),
        accuracy=first.accuracy,
        held_out=first.held_out,
        parameter_max_abs_difference=reference.max_abs_difference if reference else None,
        parameter_max_relative_difference=reference.max_relative_difference if reference else None,
        reference_loss_last=reference.loss_last if reference else None,
        limits=options.limits,
        checkpoints=first.checkpoints,
        gradients_differ_from_step=_first_difference(tuple(report.gradient_hashes for report in reports)),
        wrong_data_ranks=tuple(
            report.rank
            for report, planned in zip(reports, reference.data_hashes if reference else (), strict=True)
            if report.data_hash != planned
        ),
        samples_per_s=tuple(round(report.samples / report.samples_seconds, 1) for report in reports),
        seconds={**slowest, "total": round(ending.seconds, 3)},
        rank_seconds=tuple({phase: round(s, 4) for phase, s in report.seconds.items()} for report in reports),
        versions=first.versions,
        environment_removed=removed,
    )


def _mean(losses: tuple[float | None, ...]) -> float | None:
    numbers = [loss for loss in losses if loss is not None]
    return fmean(numbers) if len(numbers) == len(losses) else None


def _strays(reports: tuple[RankReport, ...]) -> list[Straying]:
    return [Straying(rank=r.rank, step=r.losses.index(None) + 1) for r in reports if None in r.losses]


def _first_difference(hashes: tuple[tuple[str, ...], ...]) -> int | None:
    """The first step, from 1, at which the ranks' hashes are not all the same."""
    for step, row in enumerate(zip(*hashes, strict=True), start=1):
        if len(set(row)) > 1:
            return step
    return None


def run_ddp(options: SmokeOptions = DEFAULTS) -> SmokeResult | SmokeFailure:
    """The DDP run that ``gpucheck verify`` includes."""
    return run_smoke(options)


def real_gpus(host: Host, environment: Mapping[str, str] | None = None) -> int | None:
    """How many GPUs a framework should find, for ``judge``: those on the PCI bus.

    None where that says nothing: the hardware is simulated, or the caller chose devices by CUDA_VISIBLE_DEVICES.
    """
    if host.simulation() is not None or "CUDA_VISIBLE_DEVICES" in (os.environ if environment is None else environment):
        return None
    return sum(device.is_nvidia_gpu for device in host.pci())
