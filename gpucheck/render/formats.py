"""Every form of one Report, by its name."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpucheck.model import Report
from gpucheck.render import imported_later
from gpucheck.render import report as _report
from gpucheck.render.markdown import Change, unchanged

if TYPE_CHECKING:
    from gpucheck.render.report.kubernetes import Conditions

FORMATS = ("text", "json", "junit", "nagios", "slurm", "kubernetes", "prometheus", "html", "markdown")


# What these need (XML, Jinja2) is loaded when they are called.
WRITERS: dict[str, Callable[..., str]] = {
    "json": _report.to_json,
    **{name: imported_later(f"report.{name}", f"to_{name}") for name in FORMATS if name not in ("text", "json")},
}


def render(
    report: Report,
    format_: str,
    *,
    mark: str = "",
    verbose: bool = False,
    change: Change = unchanged,
    conditions: "Conditions | None" = None,
) -> str:
    """The report in one format, a name of FORMATS. mark: the line that a report about a recording starts with.

    The formats for programs have no place for the mark. verbose: passes and all evidence in the text.
    change: redaction of the Markdown, which is made to be published; the other formats are never redacted.
    conditions: of a Kubernetes node.
    """
    options: dict[str, Any] = {
        "html": {"mark": mark.strip()},
        "markdown": {"mark": mark, "change": change},
        "kubernetes": {"conditions": conditions},
    }
    if format_ == "text":
        return mark + _report.to_text(report, verbose=verbose)
    return WRITERS[format_](report, **options.get(format_, {}))
