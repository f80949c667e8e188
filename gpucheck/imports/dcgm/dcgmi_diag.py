"""dcgmi diag as a table, of DCGM 2, 3 and 4."""

import re
from collections.abc import Iterator

from gpucheck.imports._blocks import spans
from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import absent
from gpucheck.imports._regex import regex
from gpucheck.imports.dcgm._meaning import first_gpu, messages, unknown_meaning
from gpucheck.imports.dcgm._table import Row, framed, rows
from gpucheck.model.paste import Message, Part
from gpucheck.printable import counted

BEGIN = regex(
    r"^\s{0,8}Successfully ran diagnostic for group|^\s{0,8}\| Diagnostic {3,30}\| Result |"
    r"^\s{0,8}[|+]-{3,8} {1,4}(?:Deployment|Integration|Hardware|Stress|Metadata)\b"
)
AGAIN = regex(r"^\s{0,8}Successfully ran diagnostic for group")
INSIDE = regex(r"^\s{0,8}(?:\||\+[-=]|Error: unable to establish|Error: Unable to)")
RESULT = regex(r"^(?P<status>Pass|Fail|Warn|Skip|Not Run)\b(?: - (?P<who>.{1,120}))?$", re.IGNORECASE)
OF_GPU = regex(r"^GPU ?(?P<gpu>\d{1,3}): ?(?P<status>Pass|Fail|Warn|Skip|Not Run)", re.IGNORECASE)
TEXT = regex(r"^(?:Warning|Error|Info)\b")
HEADINGS = ("Diagnostic", "DCGM Version", "Driver Version Detected", "GPU Device IDs Detected", "Error Messages")


def parse(lines: list[str]) -> Part:
    """Failed tests as messages; the others are counted. Raises ImportProblem."""
    found: list[Message] = []
    passed: list[str] = []
    tests = 0
    for test, status, details in _tests(rows(lines)):
        tests += 1
        if status == "pass":
            passed.append(test.label)
        reported = [one for row in details if not row.label.startswith("Info") for one in _reported(test, row)]
        if status in ("fail", "warn"):
            found += reported or [_failed(test, status, details)]
        elif status == "pass":
            found += reported
    if not tests:
        raise absent(
            "result of dcgmi diag",
            "no line of the table names a test and its result",
            "Give the complete table: dcgmi diag -r 2",
        )
    return Part(messages=tuple(found), looked_at=looked_at(tests, len(passed)))


def looked_at(tests: int, passed: int) -> tuple[str, ...]:
    return (f"{counted(tests, 'test')} of dcgmi diag, of which {passed} passed",)


def _tests(found: Iterator[Row]) -> Iterator[tuple[Row, str, list[Row]]]:
    """Every test with its result and the rows below it."""
    test: Row | None = None
    status, details = "", list[Row]()
    for row in found:
        result = RESULT.match(row.text.strip())
        if result and row.label != "result" and not TEXT.match(row.label) and row.label not in HEADINGS:
            if test is not None:
                yield test, status, details
            test, status, details = row, result["status"].lower(), []
        elif test is not None and row.label not in HEADINGS:
            details.append(row)
    if test is not None:
        yield test, status, details


def _reported(test: Row, row: Row) -> list[Message]:
    if not TEXT.match(row.label):
        return []
    return messages(row.text, f"{test.label}", row.line, first_gpu(f"{row.label} {row.text}"))


def _failed(test: Row, status: str, details: list[Row]) -> Message:
    reported = next((row for row in details if TEXT.match(row.label) and not row.label.startswith("Info")), None)
    gpus = [match["gpu"] for row in details if (match := OF_GPU.match(row.text)) and match["status"].lower() != "pass"]
    shown = f"{test.label}: {test.text}" + (f": {' '.join(reported.text.split())[:300]}" if reported else "")
    gpu = gpus[0] if len(gpus) == 1 else first_gpu(test.text)
    if reported:
        gpu = first_gpu(f"{reported.label} {reported.text}")
    return unknown_meaning(shown, failed=status == "fail", line=test.line, gpu=gpu)


KIND = Kind(
    name="dcgmi-diag",
    title="the output of dcgmi diag",
    parse=parse,
    hints=("ran diagnostic for group", "| Diagnostic", "-  Deployment  -", "-  Integration  -", "-  Hardware  -"),
    blocks=lambda lines: framed(lines, spans(lines, BEGIN, INSIDE, AGAIN)),
)
