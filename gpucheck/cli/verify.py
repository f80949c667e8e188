"""Judge this host: driver, GPUs, links, fabric, installed stack, and a real training run."""

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucheck.cli._common import (
    Problem,
    open_host,
    output_options,
    progress,
    progress_end,
    recording_option,
    replay_mark,
    separated,
    simulation_options,
    write_result,
)
from gpucheck.cli._redaction import NO_REDACT
from gpucheck.model import EXIT_STATUS
from gpucheck.model.record import RECORD

if TYPE_CHECKING:
    from gpucheck.model import Report
    from gpucheck.run import Level


@click.command()
@click.option(
    "--level",
    type=click.Choice(["quick", "standard", "full"]),
    default="standard",
    show_default=True,
    help="quick reads and judges; standard also trains on two ranks and copies; full trains in every way there is.",
)
@click.option(
    "--only", multiple=True, callback=separated, metavar="NAME|TAG,...", help="Run only these steps. Repeatable."
)
@click.option("--skip", multiple=True, callback=separated, metavar="NAME|TAG,...", help="Skip these steps. Repeatable.")
@click.option(
    "--expect",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also hold the host against the site's expectations (YAML: counts, models, links, floors; docs/verify.md).",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="REPORT",
    help="Also hold the host against its own earlier JSON report: what is worse, slower, or counts errors faster.",
)
@click.option("--strict", is_flag=True, help="UNKNOWN outranks WARN: not knowing counts.")
@click.option("--timeout", type=click.FloatRange(min=1), default=20.0, show_default=True, help="Seconds NVML may take.")
@click.option("--list", "listed", is_flag=True, help="Show all steps with tags, level and cost, and end.")
@click.option("-v", "--verbose", is_flag=True, help="Spell out passes and show all evidence.")
@output_options("text", "json", "junit", "nagios", "prometheus", "html", "markdown", "all", folder=True)
@NO_REDACT
@recording_option
@simulation_options
def COMMAND(  # noqa: N802 - the name the command walk looks for
    level: "Level",
    only: tuple[str, ...],
    skip: tuple[str, ...],
    expect: Path | None,
    baseline: Path | None,
    strict: bool,
    timeout: float,
    listed: bool,
    verbose: bool,
    no_redact: bool,
    format_: str,
    output: Path | None,
    profile: str | None,
    faults: tuple[str, ...],
    recording: Path | None,
) -> int:
    """Judge this host, a simulated one, or a recording.

    Every finding says what was seen, what was wanted, why, and what to do. Nothing on the host is changed.
    --format markdown is a rig card for an issue: at most 60 lines, redacted.
    """
    if listed:
        return _list(format_, output)
    from gpucheck.cli import _verify_output

    _verify_output.refuse(format_, output, redact=not no_redact)
    host = open_host(profile, faults, recording, deadline_s=timeout)
    from gpucheck import run
    from gpucheck.cli._comparison import yardsticks

    against = yardsticks(expect, baseline, host)
    steps = run.all_steps()
    # Both yardsticks are held against what this step keeps.
    always = (RECORD,) if against else ()
    try:
        chosen = run.select(steps, level=level, only=only, skip=skip, always=always)
    except LookupError as error:
        raise Problem(_unknown_step(str(error.args[0]), steps)) from error
    if not chosen:
        raise Problem("--only and --skip leave nothing to run. Take one of them away.")
    excluded = run.left_out(run.select(steps, level=level, only=(), skip=()), chosen, only, skip)

    def write(report: "Report") -> None:
        progress_end()
        _verify_output.write(report, format_, output, mark=replay_mark(host), verbose=verbose, redact=not no_redact)

    report = run.verify(
        host,
        chosen,
        strict=strict,
        progress=progress,
        yardsticks=against,
        interrupted=write,
        excluded=excluded,
    )
    write(report)
    return EXIT_STATUS[report.verdict]


def _list(format_: str, output: Path | None) -> int:
    from gpucheck import run
    from gpucheck.run import _listing

    if format_ not in ("text", "json"):
        raise Problem(f"--list has no format {format_}: it is text or json.")
    found = _listing.listing(run.all_steps())
    write_result(_listing.to_json(found) if format_ == "json" else _listing.to_text(found), output)
    return 0


def _unknown_step(word: str, steps: tuple[object, ...]) -> str:
    names = sorted({step.name for step in steps} | {tag for step in steps for tag in step.tags})  # type: ignore[attr-defined]
    close = get_close_matches(word, names, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"{word}: no step or tag of this name.{hint} There are: {', '.join(names)}."
