"""What holds for every output, whatever the input was: of texts, formats, verdicts and marks of simulation."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import NoReturn
from xml.etree import ElementTree

from prometheus_client.parser import text_string_to_metric_families

from gpucheck.knowledge import KnowledgeError
from gpucheck.model import Finding, Report, Topology, TopologyGpu, Verdict, named, worst
from gpucheck.model.diagnosis import Diagnosis
from gpucheck.model.finding import RANK
from gpucheck.render import formats
from tests.fuzz import hostile

OWN = ("gpucheck.", "ansible_collections.gpucheck.")
# Control characters, directional and invisible ones, lone surrogates. Line breaks and tabs are looked at apart.
UNCLEAN = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
FORGED = re.compile(rf"^{hostile.FORGED}", re.MULTILINE)
OUR_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# What a person sees says so in words; a program finds it in a field.
MARKED = ("text", "nagios", "html", "junit")
LARGEST_DRAWING = 16


class Wrong(AssertionError):
    """A broken rule of outputs, and where it shows."""

    def __init__(self, rule: str, detail: str = "") -> None:
        super().__init__(f"{rule}: {ascii(detail)[:200]}" if detail else rule)


@contextmanager
def refusing(*expected: type[Exception]) -> Iterator[None]:
    """Around a reader: it may raise its own errors and the named built-in ones, with words; commands print one line.

    Its own are classes of the product, but for KnowledgeError: that is for damaged tables of gpucheck itself.
    """
    try:
        yield
    except Wrong:
        raise
    except Exception as error:
        own = type(error).__module__.startswith(OWN) and not isinstance(error, KnowledgeError)
        # No subclass of ValueError: int() and decode() raise those from anywhere.
        if not own and type(error) not in expected and not (OSError in expected and isinstance(error, OSError)):
            raise
        if not str(error).strip():
            raise Wrong("a message without words") from error


def terminal(text: str, what: str) -> None:
    """Text for a terminal: our colours and nothing else drives it, and no line is the input's."""
    plain = OUR_COLOURS.sub("", text)
    for rule, pattern in ((" with a control, directional or invisible character", UNCLEAN), (" with a line", FORGED)):
        if found := pattern.search(plain):
            raise Wrong(f"{what}{rule} that the input wrote", plain[max(0, found.start() - 60) : found.end() + 10])


def markup(text: str, what: str) -> None:
    """HTML: what an input wrote is text, never a tag."""
    if f"<{hostile.MARK}" in text:
        raise Wrong(f"{what} with a tag of the input", text[text.index(f"<{hostile.MARK}") :])


def no_better(verdict: Verdict, findings: Iterable[Finding], what: str) -> None:
    """A whole is never better than its worst part."""
    for finding in findings:
        if finding.verdict in RANK and RANK.index(finding.verdict) < RANK.index(verdict):
            raise Wrong(f"{what} better than a finding", f"{verdict.name}, but {finding.check} {finding.verdict.name}")


def simulated(text: str, what: str) -> None:
    """No simulated result without its mark."""
    if "SIMULATED" not in text.upper():
        raise Wrong(f"{what} of simulated hardware that does not say so", text)


def no_defect(findings: Iterable[Finding]) -> None:
    """No check broke on what it was given."""
    for finding in findings:
        if "defect of gpucheck" in finding.why:
            rule = f"a check broke: {str(finding.seen).partition(':')[0]}"
            raise Wrong(rule, f"{finding.check}: {finding.seen}\n" + "\n".join(finding.evidence))


def strict_json(text: str, what: str) -> None:
    """It parses, without NaN and Infinity."""

    def refuse(word: str) -> NoReturn:
        raise Wrong(f"{what} is no strict JSON", word)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError as error:
        raise Wrong(f"{what} is no JSON", str(error)) from error


def strict_xml(text: str, what: str) -> None:
    """It parses."""
    try:
        ElementTree.fromstring(text.encode())  # noqa: S314 - what gpucheck wrote
    except (ElementTree.ParseError, UnicodeEncodeError) as error:
        raise Wrong(f"{what} is no XML", str(error)) from error
    markup(text, what)


def strict_prometheus(text: str, what: str) -> None:
    """Prometheus' own parser reads it, and each series is there once."""
    terminal(text, what)
    try:
        families = list(text_string_to_metric_families(text))
    except ValueError as error:
        raise Wrong(f"{what} is not what Prometheus reads", str(error)) from error
    series = [(one.name, tuple(sorted(one.labels.items()))) for family in families for one in family.samples]
    if len(series) != len(set(series)):
        raise Wrong(f"{what}: a series twice")


def nagios(text: str, what: str) -> None:
    """One line, one bar."""
    terminal(text, what)
    if text.count("\n") != 1 or not text.endswith("\n") or text.count("|") != 1 or not text.startswith("GPUCHECK "):
        raise Wrong(f"{what} is not one line with one bar", text)


def counted_lines(text: str, what: str) -> None:
    """For Slurm: a first line with the number of lines, that many of the grammar, and the last line."""
    from gpucheck.render.machine import lines as slurm

    terminal(text, what)
    first, *lines, last = text.splitlines() or [""]
    schema, count = first.split(" ")[0], first.split(" ")[-1]
    if schema != slurm.SCHEMA or count != str(len(lines)) or last != "end":
        raise Wrong(f"{what} with a wrong first or last line", text)
    for line in lines:
        if not slurm.REASON.fullmatch(line.split(" ", 3)[3]):
            raise Wrong(f"{what} with a line outside the grammar", line)


def strict_csv(text: str, what: str) -> None:
    """Rows of one length, and no cell that a spreadsheet computes."""
    rows = list(csv.reader(io.StringIO(text, newline="")))
    if len({len(row) for row in rows}) > 1:
        raise Wrong(f"{what} with rows of several lengths")
    for cell in (cell for row in rows for cell in row):
        if cell.lstrip("\t\r\n ").startswith(hostile.FORMULA):
            raise Wrong(f"{what} with a formula of the input", cell)


def markdown(text: str, what: str) -> None:
    """Nothing of the input is a tag (a backslash makes it text), and no line is the input's."""
    terminal(text, what)
    if found := re.search(rf"(?<!\\)<{hostile.MARK}", text):
        raise Wrong(f"{what} with a tag of the input", text[found.start() :])


class _Page(HTMLParser):
    bad = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == hostile.MARK or any(name == hostile.MARK or name.startswith("on") for name, _ in attrs):
            self.bad = self.bad or f"<{tag} {attrs}>"


def html(text: str, what: str) -> None:
    """No tag and no attribute of the input. The whole parse is for pages in which the mark is."""
    markup(text, what)
    page = _Page()
    if hostile.MARK in text:
        page.feed(text)
        page.close()
    if page.bad:
        raise Wrong(f"{what} with markup of the input", page.bad)


CHECKS: dict[str, Callable[[str, str], None]] = {
    "text": terminal,
    "json": strict_json,
    "junit": strict_xml,
    "xml": strict_xml,
    "nagios": nagios,
    "prometheus": strict_prometheus,
    "html": html,
    "markdown": markdown,
    "csv": strict_csv,
    "slurm": counted_lines,
}


def shown_report(report: Report) -> None:
    """Every format, and what a report says of itself."""
    no_better(report.verdict, report.findings, "a report")
    no_defect(report.findings)
    for name in formats.FORMATS:
        text = formats.render(report, name, verbose=name == "text")
        CHECKS[name](text, f"verify's {name}")
        if report.simulated and name in MARKED:
            simulated(text, f"verify's {name}")


def shown_diagnosis(findings: Sequence[Finding]) -> None:
    """diagnose's text and JSON."""
    from gpucheck.render.formats import to_json
    from gpucheck.render.subjects import diagnosis

    whole = Diagnosis(
        verdict=worst(finding.verdict for finding in findings),
        source=("pasted.txt",),
        gpus=1,
        findings=named(tuple(findings), [TopologyGpu(index=0, pci_bus_id="GPU0")]),
        counts={verdict.value: sum(f.verdict is verdict for f in findings) for verdict in Verdict},
    )
    terminal(formats.show(diagnosis.document(whole), "text"), "diagnose's text")
    strict_json(to_json(whole), "diagnose's JSON")


def shown_topology(topology: Topology) -> None:
    """The matrix, JSON, and the page of what is small enough to be drawn a thousand times."""
    from gpucheck.render.formats import to_json
    from gpucheck.render.subjects.topology import document

    for width in (None, 80):
        terminal(formats.show(document(topology), "text", width=width), f"topo's text, {width or 'any'} columns")
    strict_json(to_json(topology), "topo's JSON")
    if 0 < len(topology.gpus) <= LARGEST_DRAWING:
        markup(formats.show(document(topology, whole=True), "html"), "topo's page")
