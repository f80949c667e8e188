"""Merge host reports, find outliers and drift"""

from pathlib import Path

import click

from gpucheck.cli._shared.common import (
    OutputFile,
    fail_on_option,
    output_options,
    separated,
)

FORMATS = ("text", "json", "csv", "prometheus", "junit", "html", "markdown")
SOURCE = click.Path(path_type=Path, allow_dash=True)
FILE = click.Path(dir_okay=False, path_type=Path)


@click.group()
def COMMAND() -> None:  # noqa: N802 - the name the command walk looks for
    """Merge host reports: outliers, drift, common causes."""


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
@click.option(
    "--write",
    "files",
    multiple=True,
    type=OutputFile(),
    help="Also write FILE. Format by suffix: .json .csv .prom .xml .html .md .txt. Repeatable.",
)
@click.option(
    "--select",
    type=click.IntRange(min=1),
    metavar="GPUS",
    help="Print healthy hosts for a job of this number of GPUs, separated by commas.",
)
@click.option("--gpu-model", metavar="NAME", help="Select only GPUs of this model (H100). Requires --select.")
@click.option("--allow-warn", is_flag=True, help="Also select WARN hosts. Requires --select.")
@fail_on_option
@click.option("-v", "--verbose", is_flag=True, help="List all hosts, including PASS, of a large fleet.")
@output_options(*FORMATS)
def report_command(sources: tuple[Path, ...], **options: object) -> int:
    """Merge SOURCES into one report and verdict.

    SOURCES are report files (.json), directories of them, or - for a stream as printed by
    ansible, kubectl or srun. The exit status is the verdict of the fleet.
    """
    from gpucheck.cli.fleet.report import ReportOptions, run

    return run(sources, ReportOptions(**options))  # type: ignore[arg-type]  # click made them
