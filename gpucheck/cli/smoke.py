"""Run a short training test on all GPUs"""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucheck.cli._shared.common import (
    NVML_SECONDS,
    fail_on_option,
    output_options,
    simulation_options,
    timeout_option,
    usage_errors,
)
from gpucheck.cli._shared.progress import Progress, progress_end
from gpucheck.cli._shared.shown import FORMATS, measured, write_report
from gpucheck.model.finding import exit_status
from gpucheck.model.smoke import SmokeReport, SmokeResult
from gpucheck.processes.ranks.nodes import nodes_from
from gpucheck.train.models import MODELS
from gpucheck.train.spec import PRECISIONS, SmokeOptions
from gpucheck.train.strategies import all_strategies

if TYPE_CHECKING:
    from gpucheck.render.subjects.smoke import ShownRun
    from gpucheck.run.steps.train import Training

DEFAULTS = SmokeOptions()
STRATEGIES = all_strategies()
FRAMEWORKS = [*dict.fromkeys(framework for framework, _ in STRATEGIES), "all"]
NAMES = [*dict.fromkeys(name for _, name in STRATEGIES), "all"]
EACH = ", ".join(f"{strategy.framework} {strategy.name}" for strategy in STRATEGIES.values() if strategy.default)
_option = partial(click.option, show_default=True)


@click.command()
@_option("--framework", type=click.Choice(FRAMEWORKS), default="all", help="Framework to test.")
@click.option("--strategy", type=click.Choice(NAMES), help=f"Parallel strategy. Default: one per framework ({EACH}).")
@click.option("--devices", metavar="0,1|UUID,UUID|cpu,cpu", help="Devices to train on. 0,0: two ranks share a GPU.")
@_option("--model", type=click.Choice(list(MODELS)), default=DEFAULTS.model, help="Network to train.")
@_option("--precision", type=click.Choice(PRECISIONS), default=DEFAULTS.precision, help="Numeric precision.")
@click.option(
    "--steps", type=click.IntRange(min=1), metavar="N", help="Optimizer steps. Default: 40, or 200 with --data."
)
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Directory with the MNIST idx files, plain or .gz. Default: generated data of the same shape.",
)
@timeout_option("one training from its first step on", DEFAULTS.timeout_s)
@fail_on_option
@output_options(*FORMATS)
@simulation_options
def COMMAND(  # noqa: N802 - the name the command walk looks for
    framework: str,
    strategy: str | None,
    devices: str | None,
    model: str,
    precision: str,
    steps: int | None,
    data: Path | None,
    timeout: float,
    fail_on: str,
    format_: str,
    output: Path | None,
) -> int:
    """Train a small network on all GPUs and compare the results.

    Each device must agree with the others and with a run on a single device. GPUs train with NCCL. With one GPU, two
    ranks share it with Gloo. Without a GPU, two CPU ranks train with Gloo. The report states which. The data is
    generated; nothing is downloaded. Several hosts: start it on each with torchrun, or with its variables
    GROUP_WORLD_SIZE, GROUP_RANK, MASTER_ADDR and MASTER_PORT.
    """
    from gpucheck.host import live_source
    from gpucheck.render.subjects.smoke import document
    from gpucheck.run.steps.train import smoke, with_fault
    from gpucheck.train.run_plan import plan, read_devices

    source = live_source(isolated=True, deadline_s=min(timeout, NVML_SECONDS))
    gpus = source.read("nvml").gpus if devices is not None or precision != "fp32" else ()
    with usage_errors(LookupError, ValueError):
        visible, number = read_devices(devices, [gpu.uuid for gpu in sorted(gpus, key=lambda gpu: gpu.pci_bus_id)])
        hosts = nodes_from(os.environ)
        options = SmokeOptions(
            model=model,
            precision=precision,  # type: ignore[arg-type]
            data=str(data.resolve()) if data is not None else None,
            visible_devices=visible,
            world_size=number * (hosts.count if hosts else 1),
            timeout_s=timeout,
            nodes=hosts,
        )
        capabilities = {gpu.compute_capability for gpu in gpus if visible != "" and gpu.compute_capability}
        runs = plan(framework, strategy, with_fault(options), steps=steps, capabilities=sorted(capabilities))
        _check_data(data)

    def write(found: "tuple[SmokeReport, tuple[Training, ...]]") -> None:
        report, trainings = found
        progress_end()
        write_report(report, lambda: document(report, [_part(training) for training in trainings]), format_, output)

    report, _ = measured(lambda keep: smoke(source, runs, Progress(len(runs)), keep, every_gpu=devices is None), write)
    return exit_status((finding.verdict for finding in report.findings), fail_on)


def _check_data(folder: Path | None) -> None:
    """Reject a damaged file before any rank starts: it is wrong usage, not a finding about this host."""
    from importlib.util import find_spec

    from gpucheck.train.data import read

    if folder is None or find_spec("numpy") is None:  # the runs are skipped for its absence
        return
    try:
        read(folder)
    except OSError as error:
        raise ValueError(f"--data {folder}: {error.filename}: {error.strerror}.") from error


def _part(training: "Training") -> "ShownRun":
    from gpucheck.checks.training._words import describe_facts
    from gpucheck.render.subjects.smoke import ShownRun

    strategy, outcome = training.strategy, training.outcome
    facts = tuple(describe_facts(outcome)) if isinstance(outcome, SmokeResult) else ()
    variant = f" {outcome.variant}" if outcome is not None and outcome.variant else ""
    return ShownRun(f"{strategy.framework} {strategy.name}{variant}: {strategy.summary}", facts, training.findings)
