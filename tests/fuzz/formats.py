"""Strict checks of what programs read: JSON, XML, Prometheus, Nagios, CSV, HTML."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from typing import NoReturn
from xml.etree import ElementTree

from tests.fuzz import hostile
from tests.fuzz.oracles import Wrong, markup, terminal, unclean

METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\\n]|\\[\\"n])*"'
LABELS = re.compile(f"{LABEL}(?:,{LABEL})*")
SAMPLE = re.compile(r"(?P<name>[^\s{]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
LABEL_NAME = re.compile(LABEL)


def strict_json(text: str, what: str) -> None:
    """It parses, without NaN and Infinity."""

    def refuse(word: str) -> NoReturn:
        raise Wrong(f"{what} is no strict JSON", word)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError as error:
        raise Wrong(f"{what} is no JSON", ascii(str(error))) from error


def strict_xml(text: str, what: str) -> None:
    """It parses."""
    try:
        ElementTree.fromstring(text.encode())  # noqa: S314 - what gpucheck wrote
    except (ElementTree.ParseError, UnicodeEncodeError) as error:
        raise Wrong(f"{what} is no XML", str(error)) from error
    markup(text, what)


def strict_prometheus(text: str, what: str) -> None:
    """As node_exporter reads it: HELP and TYPE once a family, its samples together, each series once, legal names."""
    if text.strip() and not text.endswith("\n"):
        raise Wrong(f"{what} without a line end at its end")
    unclean(text, what)
    families: set[str] = set()
    series: set[str] = set()
    family, described = "", ""
    for line in text.split("\n"):
        if line.startswith("# HELP "):
            described = line.split(" ", 3)[2]
            if described in families or not METRIC.fullmatch(described):
                raise Wrong(f"{what}: a family twice or an illegal name", ascii(line[:120]))
            families.add(described)
        elif line.startswith("# TYPE "):
            family = line.split(" ")[2]
            if family != described or line.split(" ")[3:] not in (["gauge"], ["counter"]):
                raise Wrong(f"{what}: a TYPE without its HELP", ascii(line[:120]))
        elif line:
            _sample(line, family, series, what)


def _sample(line: str, family: str, series: set[str], what: str) -> None:
    found = SAMPLE.fullmatch(line)
    if found is None or found["name"] != family:
        raise Wrong(f"{what}: a line that is no sample of its family", ascii(line[:120]))
    labels = found["labels"]
    if labels is not None:
        if not LABELS.fullmatch(labels):
            raise Wrong(f"{what}: illegal labels", ascii(line[:120]))
        names = [label[1] for label in LABEL_NAME.finditer(labels)]
        if len(names) != len(set(names)):
            raise Wrong(f"{what}: a label twice", ascii(line[:120]))
    key = line.rpartition(" ")[0]
    if key in series:
        raise Wrong(f"{what}: a series twice", ascii(line[:120]))
    series.add(key)
    try:
        float(found["value"])
    except ValueError:
        raise Wrong(f"{what}: a value that is no number", ascii(line[:120])) from None


def nagios(text: str, what: str) -> None:
    """One line, one bar."""
    terminal(text, what)
    if text.count("\n") != 1 or not text.endswith("\n") or text.count("|") != 1 or not text.startswith("GPUCHECK "):
        raise Wrong(f"{what} is not one line with one bar", ascii(text[:120]))


def slurm(text: str, what: str) -> None:
    """The first line with the number of reasons, that many lines of the grammar, and the last line."""
    from gpucheck.render.report.slurm import REASON, SCHEMA

    for reason in _counted_lines(text, what, SCHEMA):
        if not REASON.fullmatch(reason.split(" ", 3)[3]):
            raise Wrong(f"{what} with a reason outside the grammar", ascii(reason[:120]))


def kubernetes(text: str, what: str) -> None:
    """The first line with the number of conditions and labels, that many lines, and the last line."""
    from gpucheck.render.report.kubernetes import SCHEMA

    for line in _counted_lines(text, what, SCHEMA):
        if line.split(" ")[0] not in ("condition", "label"):
            raise Wrong(f"{what} with a line of another kind", ascii(line[:120]))


def _counted_lines(text: str, what: str, schema: str) -> list[str]:
    """The lines between the first, which states the schema and their number, and the last."""
    terminal(text, what)
    first, *lines, last = text.splitlines() or [""]
    if first.split(" ")[0] != schema or first.split(" ")[-1] != str(len(lines)) or last != "end":
        raise Wrong(f"{what} with a wrong first or last line", ascii(text[:120]))
    return lines


def strict_csv(text: str, what: str) -> None:
    """Rows of one length, and no cell that a spreadsheet computes."""
    rows = list(csv.reader(io.StringIO(text, newline="")))
    if len({len(row) for row in rows}) > 1:
        raise Wrong(f"{what} with rows of several lengths")
    for row in rows:
        for cell in row:
            if cell.lstrip("\t\r\n ").startswith(hostile.FORMULA):
                raise Wrong(f"{what} with a formula of the input", ascii(cell[:80]))


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.bad = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == hostile.MARK or any(name == hostile.MARK or name.startswith("on") for name, _ in attrs):
            self.bad = self.bad or f"<{tag} {attrs}>"


def markdown(text: str, what: str) -> None:
    """Nothing of the input is a tag (a backslash makes it text), and no line is the input's."""
    terminal(text, what)
    found = re.search(rf"(?<!\\)<{hostile.MARK}", text)
    if found:
        raise Wrong(f"{what} with a tag of the input", ascii(text[max(0, found.start() - 60) : found.end() + 40]))


def html(text: str, what: str) -> None:
    """No tag and no attribute of the input. The whole parse is for pages in which the mark is."""
    markup(text, what)
    if hostile.MARK in text:
        page = _Page()
        page.feed(text)
        page.close()
        if page.bad:
            raise Wrong(f"{what} with markup of the input", ascii(page.bad[:120]))
