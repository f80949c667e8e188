"""Pastes of real machines that were redacted come to the same verdicts, causes and subjects."""

from pathlib import Path

import pytest

from gpucheck import imports
from gpucheck.host.recording.redaction import Redaction
from gpucheck.imports import ImportProblem
from gpucheck.run.pastes import diagnosis
from tests.shared import from_yaml, sampled

DATA = Path(__file__).parents[1] / "data"
MOST = 60_000  # characters: the others are of the same tools


def texts():
    for path in sorted(DATA.rglob("*.yml")):
        document = from_yaml(path)
        text = document.get("raw") if isinstance(document, dict) else None
        if isinstance(text, str) and len(text) < MOST:
            yield str(path.relative_to(DATA)), text


TEXTS = dict(texts())


def outcome(text):
    """Of each machine: verdict, findings, and the tools that were recognized."""
    try:
        reading = imports.read_all(text.encode(), "paste.txt")
    except ImportProblem as problem:
        return str(problem)
    found = diagnosis([reading], sources=("paste.txt",))
    return sorted(
        (
            one.verdict.value,
            sorted((f.check, f.verdict.value, f.cause or "", f.subject) for f in one.findings),
            [read.kind for read in one.read],
        )
        for one in (found, *found.machines)
    )


@pytest.mark.parametrize("name", sampled(TEXTS, lambda number, _: number % 9 == 0))
def test_redaction_changes_no_outcome(name):
    text = TEXTS[name]
    redact = Redaction((), [text]).text

    assert outcome("\n".join(map(redact, text.split("\n")))) == outcome(text)
