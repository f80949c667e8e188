"""Check GPUs, links, driver and software stack of a host"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucheck.cli._shared.common import (
    Problem,
    fail_on_option,
    level_option,
    open_host,
    output_options,
    recording_option,
    replay_mark,
    seconds,
    several,
    simulation_options,
    timeout_option,
)
from gpucheck.cli._shared.completion import STEP
from gpucheck.cli._shared.progress import Progress, progress_end
from gpucheck.cli._shared.shown import measured, write_rendered
from gpucheck.foreign import read_bytes
from gpucheck.model.finding import exit_status
from gpucheck.model.record import RECORD
from gpucheck.printable import meant
from gpucheck.processes.trust import distrust

if TYPE_CHECKING:
    from gpucheck.model import Finding, Report
    from gpucheck.model.facts import Source
    from gpucheck.render.formats import Change
    from gpucheck.run.verification import Level

    Comparison = Callable[[Report], Iterable[Finding]]

HOST_S = 10.0
STEPS = "NAME|TAG,..."


@click.command()
@level_option(
    ", like dcgmi diag -r 1, 2 and 3. quick: checks only. standard: also copies, collectives, computing and training. "
    "full: all training strategies."
)
@several("--only", STEPS, "Run only these steps (list: gpucheck explain). Repeatable.", shell_complete=STEP)
@several("--skip", STEPS, "Skip these steps. Repeatable.", shell_complete=STEP)
@click.option(
    "--expect",
    "--baseline",
    "compared_with",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Compare the host with expectations (YAML), or with an earlier JSON report of its own: regressions, "
    "bandwidth, error rates. Repeatable.",
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
@output_options("text", "json", "junit", "nagios", "slurm", "prometheus", "html", "markdown")
@recording_option
@simulation_options
def COMMAND(  # noqa: N802 - the name the command walk looks for
    level: "Level",
    only: tuple[str, ...],
    skip: tuple[str, ...],
    compared_with: tuple[Path, ...],
    window: float | None,
    fail_on: str,
    timeout: float,
    verbose: bool,
    format_: str,
    output: Path | None,
    recording: Path | None,
) -> int:
    """Check this host, a simulated machine or a recording.

    Each finding states the observed and the expected value, the reason and the fix. The host is not changed.
    --format markdown is redacted, to be published.
    """
    host = open_host(recording, deadline_s=timeout)
    from gpucheck.run import verification as run

    if window is not None and recording is not None:
        raise Problem("--window: a recording has its own two readings. Remove --window or --from.")
    # The files are read and validated before anything is measured.
    compared = tuple(_comparison(path, host) for path in compared_with)
    # To load the measurements takes as long as all checks.
    steps = run.quick_steps() if level == "quick" and not only and not skip else run.all_steps()
    # They are compared with what this step records.
    always = (RECORD,) if compared else ()
    try:
        chosen = run.select(steps, level=level, only=only, skip=skip, always=always)
    except LookupError as error:
        word, names = str(error.args[0]), sorted({name for step in steps for name in (step.name, *step.tags)})
        if own := [step.name for step in run.all_steps() if word in step.also]:
            raise Problem(f"{word}: part of the step {own[0]}. Name {own[0]} instead.") from error
        raise Problem(f"{word}: unknown step or tag.{meant(word, names)} Available: {', '.join(names)}.") from error
    if not chosen:
        raise Problem("--only and --skip select no step. Remove one of them.")
    excluded = run.left_out(run.select(steps, level=level, only=(), skip=()), chosen, only, skip)

    def write(report: "Report") -> None:
        from gpucheck.render import formats

        def render(form: str, change: "Change | None") -> str:
            mark = replay_mark(host).strip()
            text = formats.render(report, form, recorded=mark, verbose=verbose, change=change, fail_on=fail_on)
            return f"{text}{report.findings[-1].seen}\n" if report.interrupted and form == "text" else text

        progress_end()
        write_rendered(report, render, format_, output)

    def checked(keep: "Callable[[Report], None]") -> "Report":
        return run.verify(
            host,
            chosen,
            progress=Progress(len(chosen)),
            comparisons=compared,
            interrupted=keep,
            excluded=excluded,
            window_s=window or 0.0,
        )

    report = measured(checked, write)
    return exit_status((finding.verdict for finding in report.findings), fail_on)


def _comparison(path: Path, source: "Source") -> "Comparison":
    """What a file is compared as: reports, and nothing else, have a key schema. Raises Problem."""
    from gpucheck.fleet.read import MAX_BYTES

    forged = _forged(path) if os.geteuid() == 0 else None
    content = read_bytes(path, MAX_BYTES, "Give another file")
    if b'"schema"' not in content:
        return _expectations(path, content)
    if forged is not None:
        raise Problem(
            f"{path}: not read: {forged}, so another user may have written it. Keep the baseline where only root "
            f"writes: install -D -m 600 {path.name} /var/lib/gpucheck/{path.name}"
        )
    return _baseline(path, content, source)


def _expectations(path: Path, content: bytes) -> "Comparison":
    from gpucheck import comparison
    from gpucheck.foreign.documents import DocumentProblem

    if len(content) > comparison.MAX_BYTES:
        raise Problem(f"{path}: larger than {comparison.MAX_BYTES >> 20} MiB. Give another file with --expect.")
    try:
        expected = comparison.read(content, str(path))
    except DocumentProblem as problem:
        words = str(problem)
        raise Problem(words if words.endswith(("?", ".")) else f"{words}.") from None
    return lambda report: comparison.evaluate(report, expected)


def _baseline(path: Path, content: bytes, source: "Source") -> "Comparison":
    from gpucheck import comparison
    from gpucheck.processes.deadline import StuckError, in_time

    before = _report(path, content)
    try:
        name = in_time("host name", lambda: source.read("system").system.hostname, HOST_S)
    except StuckError:
        name = before.host  # the report names the read that hangs
    reason = comparison.not_comparable(before, name, simulated=source.read("simulation").simulation is not None)
    if reason is not None:
        raise Problem(
            f"{path}: {reason}: --baseline compares a host with itself. Give a complete earlier report of it (gpucheck "
            "verify --format json -o FILE); many hosts are compared by gpucheck fleet report."
        )
    return lambda report: comparison.compare(before, report)


def _forged(path: Path) -> str | None:
    """Return why root does not believe this file, None if it does. The user who called sudo is believed."""
    caller = os.environ.get("SUDO_UID", "")
    with suppress(OSError):  # the reader reports what is missing; a pipe has no place
        return distrust(path, own=False, also=int(caller) if caller.isascii() and caller.isdigit() else None)
    return None


def _report(path: Path, content: bytes) -> "Report":
    """The one host report in a file. Raises Problem."""
    from gpucheck.fleet.read import verified

    advice = "Give the JSON report of one host with --baseline: gpucheck verify --format json -o FILE"
    try:
        return verified(content)
    except ValueError as error:
        raise Problem(f"{path}: not a report of gpucheck verify: {error}. {advice}.") from error
