"""Merge the reports of many hosts: odd ones, drift, common causes, history."""

from pathlib import Path

import click

from gpucheck.cli._common import OutputFile, Problem, Renamed, output_options, separated

FORMATS = ("text", "json", "csv", "parquet", "prometheus", "junit", "html")
SOURCE = click.Path(path_type=Path, allow_dash=True)
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group()
def COMMAND() -> None:  # noqa: N802 - the name the command walk looks for
    """Merge the reports of many hosts: odd ones, drift, common causes, history."""


@COMMAND.command()
@click.argument("sources", nargs=-1, required=True, type=SOURCE)
@click.option(
    "--expect-host",
    cls=Renamed,
    was="--expect",
    multiple=True,
    callback=separated,
    metavar="HOST",
    help="A host that must have a report; without one it is an UNKNOWN row. Repeatable, or separated by commas.",
)
@click.option("--labels", type=FILE, help="What the site knows of its hosts: CSV (host,rack,...) or YAML.")
@click.option(
    "--baseline",
    cls=Renamed,
    was="--previous",
    type=FILE,
    help="Earlier merge (--format json). Report what is new, fixed or worse.",
)
@click.option(
    "--history-dir",
    cls=Renamed,
    was="--keep",
    type=FOLDER,
    help="Also add this merge to DIR for gpucheck fleet history.",
)
@click.option(
    "--write",
    "files",
    multiple=True,
    type=OutputFile(),
    help="Also write this file, its format by its ending: .json .csv .parquet .prom .xml .html .txt. Repeatable.",
)
@click.option("--shard", is_flag=True, help="Write rows to be merged again (fleet report part*.json), judge nothing.")
@click.option("--select", type=click.IntRange(min=1), metavar="GPUS", help="Print hosts fit for a job of so many GPUs.")
@click.option(
    "--gpu-model",
    cls=Renamed,
    was="--model",
    metavar="NAME",
    help="Select only GPUs of this model, for example H100. Requires --select.",
)
@click.option(
    "--select-format",
    type=click.Choice(["lines", "slurm", "torchrun", "ansible"]),
    default="lines",
    show_default=True,
    help="How the hosts are written.",
)
@click.option("--allow-warn", is_flag=True, help="With --select: WARN hosts are fit too.")
@click.option("--strict", is_flag=True, help="UNKNOWN outranks WARN: not knowing counts.")
@click.option("-v", "--verbose", is_flag=True, help="List passing hosts of a large fleet too.")
@output_options(*FORMATS)
def report(sources: tuple[Path, ...], **options: object) -> int:
    """Merge SOURCES into one report; the exit status is the fleet's verdict.

    SOURCES are report files (.json, also .gz and .zst), folders of them, shards, or - for a stream as ansible, kubectl
    or srun print it.
    """
    from gpucheck.cli import _fleet_report

    return _fleet_report.run(sources, _fleet_report.Options(**options))  # type: ignore[arg-type]  # click made them


@COMMAND.command()
@click.option("--hosts", type=click.IntRange(1, 1_000_000), default=100, show_default=True)
@click.option("--profile", default="hgx-h100-x8", show_default=True, help="See: gpucheck profiles.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="NAME[:KEY=VALUE,...]:WHERE",
    help="Break hosts: WHERE is 3%, 12 or rack=r007. Beside the machine's faults: slow-host, slow-gpu, slow-pair.",
)
@click.option("--noise", type=click.FloatRange(0, 50), default=5.0, show_default=True, help="Percent, of one sample.")
@click.option("--samples", type=click.IntRange(1), default=15, show_default=True, help="A number is their median.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("-o", "--output", type=FOLDER, required=True, help="A new folder for the reports and the ground truth.")
def simulate(
    hosts: int, profile: str, faults: tuple[str, ...], noise: float, samples: int, seed: int, output: Path
) -> None:
    """Write the reports of a SIMULATED fleet, with the truth about who is sick."""
    from gpucheck.cli import _fleet_simulate

    _fleet_simulate.simulate(hosts, profile, faults, output, seed=seed, noise=noise, samples=samples)


@COMMAND.command()
@click.argument("name", metavar="HOST|METRIC")
@click.option(
    "--history-dir",
    cls=Renamed,
    was="--keep",
    type=FOLDER,
    required=True,
    help="Directory of merges, as written by gpucheck fleet report --history-dir.",
)
@click.option("--last", type=click.IntRange(min=1), default=60, show_default=True, help="So many merges back.")
@output_options("text", "json", "svg")
def history(name: str, history_dir: Path, last: int, format_: str, output: Path | None) -> None:
    """Show a host, or a metric of the whole fleet, over the merges that were kept."""
    from gpucheck.cli import _fleet_history

    if not history_dir.is_dir():
        add = f"gpucheck fleet report REPORTS --history-dir {history_dir}"
        raise Problem(f"{history_dir}: no such directory. Add a merge to it first: {add}")
    _fleet_history.run(name, history_dir, last, format_, output)
