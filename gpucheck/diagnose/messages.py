"""Messages of programs with a known meaning -> findings."""

from collections.abc import Iterable, Iterator

from gpucheck.knowledge.codes import Subject
from gpucheck.knowledge.messages import row
from gpucheck.model.finding import Finding, Verdict
from gpucheck.model.paste import Message

MOST_SHOWN = 5
LONGEST = 500  # characters of a line that are evidence


def of_messages(messages: Iterable[Message]) -> Iterator[Finding]:
    """One finding for each meaning and GPU, with the lines as evidence; harmless messages give none.

    Where programs of several kinds name the same cause, the finding of the first has the lines of all.
    """
    groups: dict[tuple[str, str | None], list[Message]] = {}
    by_cause: dict[tuple[str, str, str | None], str] = {}
    for message in messages:
        known = row(message.key)
        if known.verdict == "pass":
            continue
        key = message.key
        if known.cause is not None:
            first = by_cause.setdefault((known.cause, known.verdict, message.gpu), key)
            key = first if _program(first) != _program(key) else key
        groups.setdefault((key, message.gpu), []).append(message)
    for (key, gpu), found in groups.items():
        known = row(key)
        lines = list(dict.fromkeys(_short(message.text) for message in found))
        more = len(lines) - MOST_SHOWN
        yield Subject(
            check=_program(key),
            name="host" if gpu is None else f"gpu:{gpu}",
            evidence=(*lines[:MOST_SHOWN], *((f"and {more} more",) if more > 0 else ())),
        ).finding(
            Verdict(known.verdict),
            "message.known-line",
            known.says,
            cause=known.cause,
            confidence=known.confidence,
            advice=known.steps,
            message=key,
            meaning=known.why or known.says,
        )


def _program(key: str) -> str:
    return key.split(".", 1)[0]


def _short(line: str) -> str:
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
