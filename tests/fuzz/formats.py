"""Strict checks of what programs read: JSON, XML, Prometheus, Nagios, CSV, HTML."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from typing import NoReturn
from xml.etree import ElementTree

from prometheus_client.parser import text_string_to_metric_families

from tests.fuzz import hostile
from tests.fuzz.oracles import Wrong, markup, terminal, unclean


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
    """Prometheus' own parser reads it, and each series is there once."""
    unclean(text, what)
    try:
        series = [
            (sample.name, tuple(sorted(sample.labels.items())))
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]
    except ValueError as error:
        raise Wrong(f"{what} is not what Prometheus reads", ascii(str(error))[:120]) from error
    if len(series) != len(set(series)):
        raise Wrong(f"{what}: a series twice")


def nagios(text: str, what: str) -> None:
    """One line, one bar."""
    terminal(text, what)
    if text.count("\n") != 1 or not text.endswith("\n") or text.count("|") != 1 or not text.startswith("GPUCHECK "):
        raise Wrong(f"{what} is not one line with one bar", ascii(text[:120]))


def slurm(text: str, what: str) -> None:
    """The first line with the number of reasons, that many lines of the grammar, and the last line."""
    from gpucheck.render.machine.slurm import REASON, SCHEMA

    for reason in _counted_lines(text, what, SCHEMA):
        if not REASON.fullmatch(reason.split(" ", 3)[3]):
            raise Wrong(f"{what} with a reason outside the grammar", ascii(reason[:120]))


def kubernetes(text: str, what: str) -> None:
    """The first line with the number of conditions and labels, that many lines, and the last line."""
    from gpucheck.render.machine.kubernetes import SCHEMA

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
