"""verify: the report in the format that was asked for, to stdout or a file."""

from pathlib import Path
from typing import TYPE_CHECKING

from gpucheck.cli._shared.output import MODES, replaces, write_result
from gpucheck.cli._shared.redaction import of
from gpucheck.cli._shared.shown import print_part
from gpucheck.model import Report
from gpucheck.processes.atomic import PRIVATE
from gpucheck.render import formats

if TYPE_CHECKING:
    from gpucheck.render.machine.kubernetes import Conditions


def write_report(report: Report, format_: str, output: Path | None, *, mark: str, verbose: bool, fail_on: str) -> None:
    """mark: the line that a report about a recording starts with. Markdown is redacted. Raises Problem.

    A file keeps the last complete report, which may be a baseline or what a monitor reads: the part that an interrupted
    run has goes to stderr then, as text.
    """
    if report.interrupted and output is not None and replaces(output):
        text = formats.render(report, "text", recorded=mark.strip(), verbose=verbose)
        print_part(f"{text}{report.findings[-1].seen}\n", output)
        return
    change = of(report) if format_ == "markdown" else None
    conditions = _conditions() if format_ == "kubernetes" else None
    text = formats.render(
        report, format_, recorded=mark.strip(), verbose=verbose, change=change, conditions=conditions, fail_on=fail_on
    )
    if report.interrupted and format_ == "text":
        text += f"{report.findings[-1].seen}\n"
    write_result(text, output, mode=MODES.get(format_, PRIVATE))


def _conditions() -> "Conditions":
    """Return the conditions of a Kubernetes node, from the tables of causes and actions."""
    from gpucheck.knowledge import causes
    from gpucheck.knowledge.causes import actions, conditions
    from gpucheck.render.machine.kubernetes import Conditions

    of_domain = conditions()
    return Conditions(
        types=tuple(condition for condition in of_domain.values() if condition),
        of_cause={key: of_domain[cause.domain] for key, cause in causes().items()},
        acting=frozenset(action for action, meaning in actions().items() if meaning.condition),
    )
