"""Check GPUs, links, driver and software stack of a host"""

from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucheck.cli._shared.common import (
    MODES,
    Problem,
    fail_on_option,
    open_host,
    output_options,
    recording_option,
    replaces,
    replay_mark,
    seconds,
    separated,
    simulation_options,
    timeout_option,
    write_result,
)
from gpucheck.cli._shared.completion import STEP
from gpucheck.cli._shared.progress import Progress, progress_end
from gpucheck.cli._shared.shown import measured, print_part, redaction_of
from gpucheck.model.finding import exit_status
from gpucheck.model.record import RECORD
from gpucheck.processes.atomic import PRIVATE

if TYPE_CHECKING:
    from gpucheck.model import Report
    from gpucheck.run.verification import Level


@click.command()
@click.option(
    "--level",
    type=click.Choice(["quick", "standard", "full"]),
    default="standard",
    show_default=True,
    help="Extent of the run, like dcgmi diag -r 1, 2 and 3. quick: checks only. standard: also copies, collectives, "
    "computing and training. full: all training strategies.",
)
@click.option(
    "--only",
    multiple=True,
    callback=separated,
    shell_complete=STEP,
    metavar="NAME|TAG,...",
    help="Run only these steps (list: gpucheck explain). Repeatable.",
)
@click.option(
    "--skip",
    multiple=True,
    callback=separated,
    shell_complete=STEP,
    metavar="NAME|TAG,...",
    help="Skip these steps. Repeatable.",
)
@click.option(
    "--expect", type=click.Path(path_type=Path), metavar="FILE", help="Compare the host with expectations (YAML)."
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Compare the host with an earlier JSON report of its own: regressions, bandwidth, error rates.",
)
@click.option(
    "--window",
    type=seconds(),
    metavar="SECONDS",
    help="Read counters of network ports again after at least SECONDS. Default: at the end of the run.",
)
@fail_on_option
@timeout_option()
@click.option("-v", "--verbose", is_flag=True, help="Show the state of each GPU, each PASS and all evidence.")
@output_options(
    "text",
    "json",
    "junit",
    "nagios",
    "slurm",
    "kubernetes",
    "prometheus",
    "html",
    "markdown",
)
@recording_option
@simulation_options
def COMMAND(  # noqa: N802 - the name the command walk looks for
    level: "Level",
    only: tuple[str, ...],
    skip: tuple[str, ...],
    expect: Path | None,
    baseline: Path | None,
    window: float | None,
    fail_on: str,
    timeout: float,
    verbose: bool,
    format_: str,
    output: Path | None,
    profile: str | None,
    faults: tuple[str, ...],
    recording: Path | None,
) -> int:
    """Check this host, a simulated machine or a recording.

    Each finding states the observed and the expected value, the reason and the fix. The host is not changed.
    --format markdown prints a redacted summary of at most 60 lines for an issue.
    """
    host = open_host(profile, faults, recording, deadline_s=timeout)
    from gpucheck.cli.verify.comparison import comparisons
    from gpucheck.run import verification as run

    if window is not None and recording is not None:
        raise Problem("--window: a recording has its own two readings. Remove --window or --from.")
    compared = comparisons(expect, baseline, host)
    # To load the measurements takes as long as all checks.
    steps = run.quick_steps() if level == "quick" and not only and not skip else run.all_steps()
    # Both files are compared with what this step records.
    always = (RECORD,) if compared else ()
    try:
        chosen = run.select(steps, level=level, only=only, skip=skip, always=always)
    except LookupError as error:
        raise Problem(_unknown_step(str(error.args[0]), steps)) from error
    if not chosen:
        raise Problem("--only and --skip select no step. Remove one of them.")
    excluded = run.left_out(run.select(steps, level=level, only=(), skip=()), chosen, only, skip)

    def write(report: "Report") -> None:
        progress_end()
        write_report(report, format_, output, mark=replay_mark(host), verbose=verbose, fail_on=fail_on)

    def checked(keep: "Callable[[Report], None]") -> "Report":
        shown = Progress(len(chosen))
        return run.verify(
            host,
            chosen,
            progress=shown,
            comparisons=compared,
            interrupted=keep,
            excluded=excluded,
            window_s=window or 0.0,
        )

    report = measured(checked, write)
    return exit_status((finding.verdict for finding in report.findings), fail_on)


def _unknown_step(word: str, steps: tuple[object, ...]) -> str:
    names = sorted({step.name for step in steps} | {tag for step in steps for tag in step.tags})  # type: ignore[attr-defined]
    close = get_close_matches(word, names, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"{word}: unknown step or tag.{hint} Available: {', '.join(names)}."


def write_report(
    report: "Report", format_: str, output: Path | None, *, mark: str, verbose: bool, fail_on: str
) -> None:
    """mark: the line that a report about a recording starts with. Markdown is redacted. Raises Problem.

    A file keeps the last complete report, which may be a baseline or what a monitor reads: the part that an interrupted
    run has goes to stderr then, as text.
    """
    from gpucheck.render import formats

    if report.interrupted and output is not None and replaces(output):
        text = formats.render(report, "text", recorded=mark.strip(), verbose=verbose)
        print_part(f"{text}{report.findings[-1].seen}\n", output)
        return
    change = redaction_of(report) if format_ == "markdown" else None
    text = formats.render(report, format_, recorded=mark.strip(), verbose=verbose, change=change, fail_on=fail_on)
    if report.interrupted and format_ == "text":
        text += f"{report.findings[-1].seen}\n"
    write_result(text, output, mode=MODES.get(format_, PRIVATE))
