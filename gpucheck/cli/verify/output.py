"""verify: the report in the format that was asked for, to stdout, a file, or a directory of all formats."""

import os
import shutil
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucheck.cli._shared.output import MODES, STDOUT, Problem, not_written, refuse_unwritable, replaces, write_result
from gpucheck.cli._shared.redaction import of_report
from gpucheck.model import Report
from gpucheck.printable import one_line
from gpucheck.processes.atomic import PRIVATE, sync_folder, write_atomic
from gpucheck.render import formats
from gpucheck.render.markdown import unchanged

if TYPE_CHECKING:
    from gpucheck.render.report.kubernetes import Conditions

ALL = "all"
MARKDOWN = "markdown"


def refuse(format_: str, output: Path | None) -> None:
    """Raises Problem for an -o that could not be written, before anything is measured."""
    if format_ == ALL:
        refuse_folder(output, formats.FILES.values())
    elif output is not None and output.is_dir():
        raise Problem(f"{output}: is a directory, and --format {format_} writes a file. Name a file with -o.")


def write_report(report: Report, format_: str, output: Path | None, *, mark: str, verbose: bool) -> None:
    """mark: the line that a report about a recording starts with. Markdown is redacted. Raises Problem.

    A file keeps the last complete report, which may be a baseline or what a monitor reads: the part that an interrupted
    run has goes to stderr then, as text.
    """
    if report.interrupted and output is not None and replaces(output):
        kept = f"{output}: not written, for the run was interrupted"
        text = formats.render(report, "text", mark=mark, verbose=verbose)
        click.echo(f"{text}{report.findings[-1].seen}\n{one_line(kept)}", err=True)
        return
    change = of_report(report) if format_ in (MARKDOWN, ALL) else unchanged
    if format_ == ALL and output is not None:
        rendered = formats.render_all(report, mark=mark, verbose=verbose, change=change, conditions=_conditions())
        write_folder(rendered, output)
        return
    conditions = _conditions() if format_ == "kubernetes" else None
    text = formats.render(report, format_, mark=mark, verbose=verbose, change=change, conditions=conditions)
    if report.interrupted and format_ == "text":
        text += f"{report.findings[-1].seen}\n"
    write_result(text, output, mode=MODES.get(format_, PRIVATE))


def refuse_folder(output: Path | None, names: Collection[str]) -> None:
    """Raise Problem for a directory that cannot be written, or that contains other than the named files."""
    if output is None or output == STDOUT:
        raise Problem("--format all writes a directory with a file for each format. Name the directory with -o DIR.")
    if output.exists() and not output.is_dir():
        raise Problem(f"{output}: is a file, and --format all writes a directory. Choose another path with -o.")
    if output.is_dir():
        other = sorted(entry.name for entry in output.iterdir() if entry.name not in names)
        if other:
            raise Problem(
                f"{output}: contains {other[0]}, which gpucheck did not write, and the directory is replaced. "
                "Choose a new directory with -o."
            )
    refuse_unwritable(output.resolve())


def write_folder(files: Mapping[str, str], output: Path) -> None:
    """Write the files to a temporary directory and rename it; an earlier directory of gpucheck is replaced.

    Raises Problem if the directory cannot be written; an earlier one is then unchanged.
    """
    refuse_folder(output, files)
    target = output.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            for name, text in files.items():
                write_atomic(staged / name, text.encode(), mode=MODES.get(Path(name).suffix, PRIVATE))
            umask = os.umask(0o077)
            os.umask(umask)
            staged.chmod(0o755 & ~umask)
            _take_place(staged, target)
            sync_folder(target.parent)
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)
            raise
    except OSError as error:
        raise not_written(output, error) from error


def _take_place(staged: Path, target: Path) -> None:
    """Rename to a new or empty directory; a full one is renamed first, and restored if that fails."""
    if not target.exists() or not any(target.iterdir()):
        staged.rename(target)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    target.rename(aside)
    try:
        staged.rename(target)
    except OSError:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _conditions() -> "Conditions":
    """Return the conditions of a Kubernetes node, from the tables of causes and actions."""
    from gpucheck.knowledge import causes
    from gpucheck.knowledge.actions import actions, conditions
    from gpucheck.render.report.kubernetes import Conditions

    of_domain = conditions()
    return Conditions(
        types=tuple(condition for condition in of_domain.values() if condition),
        of_cause={key: of_domain[cause.domain] for key, cause in causes().items()},
        acting=frozenset(action for action, meaning in actions().items() if meaning.condition),
    )
