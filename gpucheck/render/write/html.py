"""One self-contained page: no network, no additional file, and nothing from a host that could run.

Readable without scripts, which only filter, copy and point. Styles and scripts are inlined and named by hash in a
content security policy; a host's strings reach the page as escaped text (Jinja2) or as JSON data that scripts write
with textContent only.
"""

import base64
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import msgspec
from markupsafe import Markup, escape

from gpucheck.model import Verdict
from gpucheck.model.finding import bus_ids
from gpucheck.printable import UNPRINTABLE, indented, printable
from gpucheck.render.blocks import LOW_TEXT, Block, Document, Findings, Matrices, Matrix, Section, SideBySide, cells
from gpucheck.render.findings import TROUBLE, Group, also
from gpucheck.render.words import WORST_FIRST, counted_names, plural

PAGES = Path(__file__).parent.parent / "pages"
# What may end the data's script element or change how it is read; in JSON all of it can only stand inside strings.
UNSAFE = re.compile(rf"[<>&]|(?!\n){UNPRINTABLE.pattern}|\\u00[01][0-9a-f]|\\u007f")
SHAPE = {Verdict.PASS: "\u00b7", Verdict.WARN: "!", Verdict.FAIL: "\u00d7", Verdict.UNKNOWN: "?", Verdict.SKIP: "-"}
# Evidence of all subjects of a fault; one fault of 72 GPUs must not fill the page.
EVIDENCE = 40
MOST_OF_AN_ANCHOR = 60
LOWER = "\u2193"
MEANING = {
    Verdict.FAIL: f"{SHAPE[Verdict.FAIL]} the pair fails",
    Verdict.WARN: f"{SHAPE[Verdict.WARN]} the pair has a warning",
    Verdict.PASS: "as expected",
    Verdict.SKIP: "no expectation",
}


class Shown(NamedTuple):
    """A group of findings. left: lines of evidence that are not shown. also: what other checks found of it; reasons:
    the same with why and fix. verdicts: of all its findings. anchor: its id on the page, the same in the next report.
    """

    group: Group
    evidence: tuple[str, ...]
    left: int
    also: tuple[str, ...]
    reasons: tuple[str, ...]
    verdicts: str
    anchor: str


def write(document: Document) -> str:
    """Return the page."""
    taken: dict[str, int] = {}
    top = None if document.findings is None else [*shown(document.findings, taken)]
    problems = [one for one in top or () if one.group.verdict in TROUBLE]
    return page(
        "report.html.j2",
        verdict=document.verdict,
        data=next((block.pairs for block in _every(document.body) if isinstance(block, Matrices)), {}),
        styles=("tokens.css", "parts.css", "report.css"),
        scripts=("page.js", "report.js"),
        document=document,
        verdicts=WORST_FIRST,
        top=top,
        counted=plural(len(problems), "problem"),
        again=f"gpucheck {document.command} --format json",
        names=lambda found: counted_names(f.check for one in found for f in one.group.findings),
        shown=lambda found: [*shown(found, taken)],
        anchors=_anchors(problems),
        signs={verdict.value: sign for verdict, sign in SHAPE.items()} | {"low": LOWER, "off": SHAPE[Verdict.FAIL]},
        cells=cells,
        heat=heat,
        kind=lambda block: type(block).__name__,
    )


def page(
    template: str, *, verdict: Verdict, data: Any, styles: tuple[str, ...], scripts: tuple[str, ...], **values: Any
) -> str:
    """Fill the template, which extends page.html.j2.

    verdict: the worst. data becomes the JSON of ``<script type="application/json" id="data">``.
    """
    style, script = _joined(styles), _joined(scripts)
    allowed = f"style-src {_hash(style)}; script-src {_hash(script)}"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    return (
        _environment()
        .get_template(template)
        .render(
            verdict=verdict,
            shape=SHAPE,
            policy=policy,
            style=Markup(style),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own files
            data=Markup(json_data(data)),  # noqa: S704 - escaped by json_data
            **values,
        )
    )


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters["steps"] = steps
    return environment


def json_data(data: Any) -> str:
    """JSON that is safe inside a script element and free of control and direction characters."""
    return UNSAFE.sub(_escape, msgspec.json.encode(data).decode())


def steps(text: object) -> Markup:
    """Return printable text that keeps its line breaks: a fix has one step a line."""
    return escape(indented(str(text)))


def shown(found: Findings, taken: dict[str, int]) -> Iterator[Shown]:
    """Yield the groups, worst first. taken: anchors that the page has, and how often; filled in."""
    for group in found.groups:
        evidence = group.every_evidence
        yield Shown(
            group=group,
            evidence=evidence[:EVIDENCE],
            left=max(0, len(evidence) - EVIDENCE),
            also=tuple(also(group)),
            reasons=tuple(also(group, verbose=True)) if group.also else (),
            verdicts=" ".join(dict.fromkeys(one.verdict.value for one in (group, *group.also))),
            anchor=_anchor(group, taken),
        )


class Heat(NamedTuple):
    """rows: label of the source, then (text, class) of each cell. legend: class and text."""

    rows: list[tuple[str, list[tuple[str, str]]]]
    legend: list[tuple[str, str]]


def heat(block: Matrix) -> Heat:
    """Return the cells of a matrix as text, with what their colors mean."""
    rows = [
        (label, [_number(cell, verdicts[j], (i, j) in block.low) for j, cell in enumerate(row)])
        for i, (label, row, verdicts) in enumerate(zip(block.labels, block.cells, block.verdicts, strict=True))
    ]
    used = {kind for _, row in rows for _, kind in row}
    legend = [(verdict.value, MEANING[verdict]) for verdict in (Verdict.FAIL, Verdict.WARN) if verdict.value in used]
    legend += [("low", f"{LOWER} {LOW_TEXT}")] if any(kind.endswith("low") for kind in used) else []
    legend += [
        (verdict.value, MEANING[verdict])
        for verdict in (Verdict.PASS, Verdict.SKIP)
        if any(kind.startswith(verdict.value) for kind in used)
    ]
    return Heat(rows, legend)


def _number(cell: float | None, verdict: Verdict | None, low: bool) -> tuple[str, str]:
    if cell is None or verdict is None:
        return "", "none"
    bad = verdict in (Verdict.FAIL, Verdict.WARN)
    mark = SHAPE[verdict] if bad else LOWER if low else ""
    return f"{mark}{cell:.0f}" if cell >= 100 else f"{mark}{cell:.1f}", (
        f"{verdict.value} low" if low and not bad else verdict.value
    )


def _every(blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        inside = block.blocks if isinstance(block, Section) else ()
        if isinstance(block, SideBySide):
            inside = [one for part in block.parts for one in part]
        yield from _every(inside)


def _anchors(found: Iterable[Shown]) -> dict[str, str]:
    anchors: dict[str, str] = {}
    for one in found:
        for group in (one.group, *one.group.also):
            for finding in group.findings:
                for bus_id in bus_ids(finding.subject):
                    anchors.setdefault(bus_id, one.anchor)
    return anchors


def _anchor(group: Group, taken: dict[str, int]) -> str:
    finding = group.first
    place = finding.subject if finding.gpu_index is None else f"gpu{finding.gpu_index}"
    name = re.sub(r"[^a-z0-9]+", "-", f"{finding.check}-{place}".lower())[:MOST_OF_AN_ANCHOR].strip("-")
    taken[name] = taken.get(name, 0) + 1
    return f"finding-{name}" + (f"-{taken[name]}" if taken[name] > 1 else "")


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    return f"\\u{ord(character):04x}" if character in "<>&" else "\\ufffd"


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join((PAGES / name).read_text(encoding="utf-8").strip() for name in names)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
