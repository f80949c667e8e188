"""Merge host reports, find outliers and drift"""

import gc
import os
import shlex
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from gpucheck.cli._shared.common import (
    DIRECTORY,
    OutputFile,
    Problem,
    descriptor,
    fail_on_option,
    note,
    output_options,
    remote_option,
    several,
    usage_errors,
    write_result,
)
from gpucheck.cli._shared.progress import steps
from gpucheck.cli._shared.shown import write_rendered
from gpucheck.cli._shared.width import columns
from gpucheck.foreign import opened, shown
from gpucheck.model import Verdict
from gpucheck.model.finding import EXIT_STATUS, exit_status
from gpucheck.model.fleet import FleetReport, FleetRow
from gpucheck.processes.atomic import PRIVATE

if TYPE_CHECKING:
    from gpucheck.render.formats import Change

ENDINGS = {
    ".txt": "text",
    ".json": "json",
    ".csv": "csv",
    ".prom": "prometheus",
    ".xml": "junit",
    ".html": "html",
    ".md": "markdown",
}
SOURCE = click.Path(path_type=Path, allow_dash=True)
FILE = click.Path(dir_okay=False, path_type=Path)
MOST_SEARCH = 256 << 20


@click.group()
def COMMAND() -> None:  # noqa: N802 - the name the command walk looks for
    """Merge host reports: outliers, drift, common causes."""


@COMMAND.command("report")
@click.argument("sources", nargs=-1, required=True, type=SOURCE)
@several("--expect-host", "HOST,...", "Hosts that must have a report. A missing report is an UNKNOWN row. Repeatable.")
@click.option("--labels", type=FILE, help="Host labels of your site: CSV (host,rack,...).")
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
@output_options(*ENDINGS.values())
def report_command(sources: tuple[Path, ...], **options: object) -> int:
    """Merge SOURCES into one report and verdict.

    SOURCES are report files (.json), directories of them, or - for a stream as printed by
    kubectl, srun or cat. The exit status is the verdict of the fleet.
    """
    # Reports are trees: Python's search for cycles finds none in a million objects, and costs a quarter of the time.
    # The processes that read inherit this.
    gc.disable()
    try:
        return _report(sources, ReportOptions(**options))  # type: ignore[arg-type]  # click made them
    finally:
        gc.enable()


class ReportOptions(NamedTuple):
    """The options of the command line, as click hands them on."""

    expect_host: tuple[str, ...]
    labels: Path | None
    baseline: Path | None
    files: tuple[Path, ...]
    select: int | None
    gpu_model: str | None
    allow_warn: bool
    fail_on: str
    verbose: bool
    format_: str
    output: Path | None


def _report(sources: tuple[Path, ...], options: ReportOptions) -> int:
    from gpucheck import fleet
    from gpucheck.fleet.compare import read_previous
    from gpucheck.fleet.row import read_labels

    if options.gpu_model and options.select is None:
        raise Problem("--gpu-model requires --select. Add the number of GPUs: --select 64 --gpu-model H100.")
    wrong = [file for file in options.files if file.suffix not in ENDINGS]
    if wrong:
        raise Problem(f"--write {wrong[0]}: unknown file name extension. Available: {' '.join(ENDINGS)}.")
    expected = [host for host in options.expect_host if host]
    with usage_errors(ValueError):
        labels = read_labels(options.labels) if options.labels else None
        previous = read_previous(options.baseline) if options.baseline else None
    rows = _rows(sources, required=not expected)
    merged = fleet.merge(rows, expected, labels=labels, previous=previous, now=datetime.now(timezone.utc))
    if options.select is not None:
        return _select(merged, options)
    for form, file in (*((ENDINGS[file.suffix], file) for file in options.files), (options.format_, options.output)):
        write_rendered(merged, partial(_content, merged, options, columns(file)), form, file)
    verdicts = {row.verdict for row in merged.hosts} | {one.verdict for row in merged.hosts for one in row.problems}
    return exit_status(verdicts, options.fail_on)


def _rows(sources: tuple[Path, ...], *, required: bool) -> Iterator[FleetRow]:
    """Yield the rows of every source. Raises Problem if one is not there, or all are empty and some are required."""
    from gpucheck import fleet

    files: list[Path] = []
    streams = [source for source in dict.fromkeys(sources) if str(source) == "-" or descriptor(source) is not None]
    for source in (source for source in sources if source not in streams):
        if not source.exists():
            raise Problem(
                f"{source}: no such file or directory. Give report files, or the directory that contains them."
            )
        files += fleet.report_files(source) if source.is_dir() else [source]
    if required and not files and not streams:
        folders = ", ".join(map(str, sources))
        raise Problem(
            f"{folders}: contains no *.json report. Run gpucheck verify --format json on the hosts first.", exit_code=3
        )
    with steps(len(files), "report") as progress:
        for row in fleet.read_reports(files):
            progress(row.host)
            yield row
    for source in streams:
        with opened(source) as stream:
            yield from fleet.read_stream(stream, shown(source))


def _select(merged: FleetReport, options: ReportOptions) -> int:
    from gpucheck.fleet.select import about_refused, select

    try:
        chosen = select(merged, options.select or 1, model=options.gpu_model, allow_warn=options.allow_warn)
    except LookupError as error:
        words, refused = error.args
        raise Problem(" ".join([words, *([f"{about_refused(refused)}."] if refused else [])]), exit_code=2) from error
    write_result(",".join(row.host for row in chosen.hosts), options.output)
    mark = "SIMULATED " if merged.simulated else ""
    if chosen.refused:
        note(f"gpucheck: {about_refused(chosen.refused)}")
    note(f"gpucheck: {mark}{chosen.gpus} GPUs on {len(chosen.hosts)} hosts, all {chosen.group}")
    return 0


def _content(
    merged: FleetReport, options: ReportOptions, width: int | None, form: str, change: "Change | None"
) -> str | Iterable[bytes]:
    from gpucheck.render import fleet as render

    if form == "json":
        return render.json_pieces(merged)
    return render.render(merged, form, verbose=options.verbose, width=width, change=change, fail_on=options.fail_on)


@COMMAND.command("history")
@click.argument("sources", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--labels", type=FILE, help="Host labels of your site, for the CSV: CSV (host,switch,...).")
@output_options("text", "json", "csv")
def history_command(sources: tuple[Path, ...], labels: Path | None, format_: str, output: Path | None) -> None:
    """Rank nodes by how often they were bad, with an interval.

    SOURCES are reports of verify and isolate (.json), directories of them, and what Slurm's accounting printed:
    sacctmgr -nP show event start=2026-01-01 format=NodeName,TimeStart,TimeEnd,State,Reason. The CSV is for isolate
    --switches and gate --history.
    """
    from gpucheck.fleet import report_files
    from gpucheck.fleet.history import history
    from gpucheck.fleet.row import read_labels
    from gpucheck.render.fleet import history_to_csv, history_to_text
    from gpucheck.render.formats import to_json

    files = [file for source in sources for file in (report_files(source) if source.is_dir() else [source])]
    with usage_errors(ValueError):
        found = history(files)
        of_site = read_labels(labels) if labels else {}
    if not found.nodes:
        raise Problem(f"{', '.join(map(str, sources))}: no report and no event of a node.", exit_code=3)
    if format_ == "json":
        text = to_json(found)
    else:
        text = history_to_csv(found, of_site) if format_ == "csv" else history_to_text(found)
    write_result(text, output)


@COMMAND.command("evidence")
@click.argument("search", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@several("--nodes", "NODE,...", "Default: the nodes with FAIL.")
@click.option("--inventory", type=FILE, help="Ansible inventory: as isolate.")
@remote_option
@click.option("-o", "--output", type=DIRECTORY, default=Path(), help="Write the archives there. Default: here.")
def evidence_command(search: Path, nodes: tuple[str, ...], inventory: Path | None, remote: str, output: Path) -> int:
    """Write an archive about each node that isolate named.

    SEARCH is what isolate --format json printed. NODE.tar.gz has a recording of the node, its report, kernel log and
    GPUs, and its tests. Names, addresses and secrets are redacted, but for the serial numbers of GPUs in gpus.csv: a
    support case needs them. The nodes are reached over ssh.
    """
    import msgspec

    from gpucheck.cli._shared.evidence import RECORD, RECORD_S, named_nodes, pack
    from gpucheck.foreign import UnreadableInput, read_bytes
    from gpucheck.isolate.launch import last_line, run_on_each
    from gpucheck.isolate.run import launcher_of
    from gpucheck.model.isolation import IsolationReport

    with usage_errors(ValueError, msgspec.DecodeError):
        found = msgspec.json.decode(read_bytes(search, MOST_SEARCH), type=IsolationReport)
        wanted = nodes or named_nodes(found)
        if not wanted:
            raise Problem(f"{search}: names no node. Give --nodes.")
        launcher = launcher_of(wanted, inventory, os.environ, least=1, gpucheck=remote)
    unknown = [name for name in wanted if name not in {one.name for one in found.nodes}]
    if unknown:
        raise Problem(f"{search}: {', '.join(unknown)}: not in this search.")
    with steps(0) as progress:
        progress(f"{len(wanted)} nodes: recording")
        answers = run_on_each(launcher, shlex.join([remote, *RECORD]), RECORD_S)
    status = 0
    for name, answer in answers.items():
        try:
            content = pack(name, answer.output, found)
        except UnreadableInput:
            note(f"{name}: no recording: {last_line(answer.errors)}")
            status = EXIT_STATUS[Verdict.UNKNOWN]
            continue
        write_result(content, output / f"{name}.tar.gz", mode=PRIVATE)
        note(f"{output / name}.tar.gz: written. Read it before you send it.")
    return status
