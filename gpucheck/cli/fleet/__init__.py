"""Merge host reports, find outliers and drift"""

from pathlib import Path

import click

from gpucheck.cli._shared.common import (
    DIRECTORY,
    OutputFile,
    Problem,
    fault_option,
    output_options,
    separated,
    strict_option,
)
from gpucheck.cli._shared.completion import PROFILE

FORMATS = ("text", "json", "csv", "parquet", "prometheus", "junit", "html")
SOURCE = click.Path(path_type=Path, allow_dash=True)
FILE = click.Path(dir_okay=False, path_type=Path)


@click.group()
def COMMAND() -> None:  # noqa: N802 - the name the command walk looks for
    """Merge host reports: outliers, drift, common causes, history."""


@COMMAND.command("report")
@click.argument("sources", nargs=-1, required=True, type=SOURCE)
@click.option(
    "--expect-host",
    multiple=True,
    callback=separated,
    metavar="HOST,...",
    help="Hosts that must have a report. A missing report is an UNKNOWN row. Repeatable.",
)
@click.option("--labels", type=FILE, help="Host labels of your site: CSV (host,rack,...) or YAML.")
@click.option("--baseline", type=FILE, help="Earlier merge (--format json). Report what is new, fixed or worse.")
@click.option("--history-dir", type=DIRECTORY, help="Also add this merge to DIR for gpucheck fleet history.")
@click.option(
    "--write",
    "files",
    multiple=True,
    type=OutputFile(),
    help="Also write FILE. Format by suffix: .json .csv .parquet .prom .xml .html .txt. Repeatable.",
)
@click.option(
    "--shard", is_flag=True, help="Write rows for a later merge (fleet report part*.json), without a verdict."
)
@click.option(
    "--select", type=click.IntRange(min=1), metavar="GPUS", help="Print hosts for a job of this number of GPUs."
)
@click.option("--gpu-model", metavar="NAME", help="Select only GPUs of this model (H100). Requires --select.")
@click.option(
    "--select-format",
    type=click.Choice(["lines", "slurm", "torchrun", "ansible"]),
    default="lines",
    show_default=True,
    help="Format of the selected hosts.",
)
@click.option("--allow-warn", is_flag=True, help="Also select WARN hosts. Requires --select.")
@strict_option
@click.option("-v", "--verbose", is_flag=True, help="List all hosts, including PASS, of a large fleet.")
@output_options(*FORMATS)
def report_command(sources: tuple[Path, ...], **options: object) -> int:
    """Merge SOURCES into one report and verdict.

    SOURCES are report files (.json, also .gz and .zst), directories of them, shards, or - for a stream as printed by
    ansible, kubectl or srun. The exit status is the verdict of the fleet.
    """
    from gpucheck.cli.fleet.report import Options, run

    return run(sources, Options(**options))  # type: ignore[arg-type]  # click made them


@COMMAND.command("simulate")
@click.option(
    "--hosts", type=click.IntRange(1, 1_000_000), default=100, show_default=True, metavar="N", help="Number of hosts."
)
@click.option(
    "--profile",
    default="hgx-h100-x8",
    show_default=True,
    shell_complete=PROFILE,
    metavar="PROFILE",
    help="Simulated machine.",
)
@fault_option(
    "Inject a fault. WHERE: 3%, 12 or rack=r007. Also: slow-host, slow-gpu, slow-pair, slow-training, wrong-losses. "
    "Repeatable.",
    metavar="NAME[:KEY=VALUE,...]:WHERE",
)
@click.option(
    "--noise",
    type=click.FloatRange(0, 50),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="Noise of a sample.",
)
@click.option(
    "--samples",
    type=click.IntRange(1),
    default=15,
    show_default=True,
    metavar="N",
    help="Samples per measurement (the median is reported).",
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Seed of the random generator.")
@click.option("-o", "--output", type=DIRECTORY, required=True, help="New directory for reports and ground truth.")
def simulate_command(
    hosts: int, profile: str, faults: tuple[str, ...], noise: float, samples: int, seed: int, output: Path
) -> None:
    """Generate reports of a SIMULATED fleet, with ground truth."""
    from gpucheck.cli.fleet.simulate import simulate

    simulate(hosts, profile, faults, output, seed=seed, noise=noise, samples=samples)


@COMMAND.command("history")
@click.argument("name", metavar="HOST|METRIC")
@click.option(
    "--history-dir",
    type=DIRECTORY,
    required=True,
    help="Directory of merges, as written by gpucheck fleet report --history-dir.",
)
@click.option(
    "--last", type=click.IntRange(min=1), default=60, show_default=True, metavar="N", help="Number of merges."
)
@output_options("text", "json", "svg")
def history_command(name: str, history_dir: Path, last: int, format_: str, output: Path | None) -> None:
    """Show a host or a metric over previous merges."""
    from gpucheck.cli.fleet.history import run

    if not history_dir.is_dir():
        add = f"gpucheck fleet report REPORTS --history-dir {history_dir}"
        raise Problem(f"{history_dir}: no such directory. Add a merge to it first: {add}")
    run(name, history_dir, last, format_, output)
