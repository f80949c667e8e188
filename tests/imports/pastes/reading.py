"""The recorded pastes of tests/data, and what gpucheck reads and finds in a text."""

from pathlib import Path
from typing import Any

from gpucheck import imports
from gpucheck.model import Verdict
from gpucheck.model.diagnosis import Diagnosis
from gpucheck.model.diagnosis.observations import Observations
from gpucheck.model.paste import Message, Reading
from gpucheck.run.pastes import diagnosis
from tests.shared import from_yaml

DATA = Path(__file__).parents[2] / "data"
CASES: dict[str, dict[str, Any]] = {path.stem: from_yaml(path) for path in sorted((DATA / "pastes").glob("*.yml"))}
RAW: dict[str, str] = {name: case["raw"] for name, case in CASES.items()}
BANDWIDTH = {path.name: path.read_text(encoding="utf-8") for path in sorted((DATA / "bandwidth").iterdir())}


def read(text: str | bytes) -> Reading:
    data = text if isinstance(text, bytes) else text.encode("utf-8", errors="replace")
    return imports.read_all(data, "paste.txt")


def observed(text: str) -> Observations:
    """What the first part of a text holds."""
    return read(text).parts[0].facts.observed


def kinds(text: str | bytes) -> set[str]:
    return {one.kind for part in read(text).parts for one in part.ranges}


def messages(text: str) -> list[Message]:
    return [message for part in read(text).parts for message in part.messages]


def keys(text: str) -> list[str]:
    return [message.key for message in messages(text)]


def diagnosed(*texts: str) -> Diagnosis:
    return diagnosis([read("\n".join(texts))], sources=("paste",))


def accused(found: Diagnosis) -> set[str | None]:
    """Causes of WARN and FAIL."""
    return {finding.cause for finding in found.findings if finding.verdict in (Verdict.WARN, Verdict.FAIL)}
