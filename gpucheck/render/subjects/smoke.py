"""The training test: what ran where, and every finding with its number; and what a host's page shows of it."""

from collections.abc import Iterable
from typing import NamedTuple

from gpucheck.model import Finding, Report, Verdict
from gpucheck.model.measurements import trainings_of
from gpucheck.model.smoke import SmokeReport, SmokeResult
from gpucheck.printable import of_printable
from gpucheck.render.blocks import Cell, Document, Findings, Lines, Row, Section, Table, document_of, numbers, words
from gpucheck.render.findings import worst_first
from gpucheck.render.words import WORST_FIRST


class ShownRun(NamedTuple):
    """One run: its title (``torch ddp``), facts about it, and what was found."""

    title: str
    facts: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def skipped(self) -> bool:
        return bool(self.findings) and all(finding.verdict is Verdict.SKIP for finding in self.findings)


@of_printable
def document(report: SmokeReport, parts: Iterable[ShownRun]) -> Document:
    """The runs with the worst verdict first; what was not run, in a line each."""
    ordered = sorted(parts, key=lambda part: min((WORST_FIRST.index(f.verdict) for f in part.findings), default=0))
    # ``tensorflow mirrored: tensorflow is not installed``: the name of the run, without what it would prove.
    reasons = (
        f"{part.title.partition(':')[0]}: {'; '.join(dict.fromkeys(finding.why for finding in part.findings))}"
        for part in ordered
        if part.skipped
    )
    of_runs = {finding.check for part in ordered for finding in part.findings}
    others = [finding for finding in report.findings if finding.check not in of_runs]
    skipped = [Cell(reason, verdict=Verdict.SKIP) for reason in reasons]
    return document_of(
        report,
        "smoke",
        simulated="hardware; the training itself is real" if report.simulated else None,
        findings=Findings(worst_first(others)) if others else None,
        body=[
            Section(f"run-{place}", part.title, [Findings(worst_first(part.findings), check=False)], lines=part.facts)
            for place, part in enumerate(ordered)
            if not part.skipped
        ],
        foot=[Lines(skipped)] if skipped else [],
    )


def section(report: Report) -> Section | None:
    """Return the training runs of a report, None without any."""
    columns = [
        *words("run"), *words("on", kind="wordy"), *numbers("ranks", "steps"), *numbers("loss", unit="first to last"),
        *numbers("samples/s", unit="all ranks"), *numbers("scaling", unit="against one"),
    ]  # fmt: skip
    rows = [_row(run) for _, run in trainings_of(report.measurements)]
    return Section("training", "Training runs", [Table(columns, rows)]) if rows else None


def _row(run: SmokeResult) -> Row:
    speed = run.performance
    known = run.loss_first is not None and run.loss_last is not None
    return [
        Cell(_joined(" ", run.framework, run.strategy, run.variant), _joined(", ", run.model, run.precision)),
        Cell(", ".join(dict.fromkeys(run.devices)), run.placement_reason),
        str(run.world_size),
        str(run.steps or ""),
        f"{run.loss_first:.3g} to {run.loss_last:.3g}" if known else "",
        f"{sum(speed.samples_per_s):.0f}" if speed and speed.samples_per_s else "",
        f"{100 * speed.scaling_efficiency:.0f} %" if speed and speed.scaling_efficiency is not None else "",
    ]


def _joined(between: str, *parts: str) -> str:
    return between.join(filter(None, parts))
