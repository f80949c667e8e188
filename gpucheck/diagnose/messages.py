"""Messages of programs with a known meaning -> findings."""

from collections.abc import Iterable, Iterator

from gpucheck.knowledge.codes import Subject
from gpucheck.knowledge.messages import KnownMessage, row
from gpucheck.model.finding import Finding, Verdict
from gpucheck.model.paste import Message

MOST_SHOWN = 5
WORST = ("fail", "warn", "unknown")
LONGEST = 500  # characters of a line that are evidence


def of_messages(messages: Iterable[Message]) -> Iterator[Finding]:
    """One finding for each cause and GPU, or for each meaning without a cause, with the lines as evidence.

    The worst of the meanings leads. Harmless messages give none, and bare ones none next to others.
    """
    known = [(message, row(message.key)) for message in messages]
    known = [(message, meaning) for message, meaning in known if meaning.verdict != "pass"]
    known = [one for one in known if not one[1].bare] or known
    groups: dict[tuple[str, str | None], list[tuple[Message, KnownMessage]]] = {}
    for message, meaning in known:
        groups.setdefault((meaning.cause or message.key, message.gpu), []).append((message, meaning))
    for (_, gpu), members in groups.items():
        known_as = min((meaning for _, meaning in members), key=lambda meaning: WORST.index(meaning.verdict))
        lines = list(dict.fromkeys(_short(message.text) for message, _ in members))
        more = len(lines) - MOST_SHOWN
        yield Subject(
            check=known_as.key.split(".", 1)[0],
            name="host" if gpu is None else f"gpu:{gpu}",
            evidence=(*lines[:MOST_SHOWN], *((f"and {more} more",) if more > 0 else ())),
        ).finding(
            Verdict(known_as.verdict),
            "message.known-line",
            known_as.says,
            cause=known_as.cause,
            confidence=known_as.confidence,
            advice=known_as.steps,
            message=known_as.key,
            meaning=known_as.why or known_as.says,
        )


def _short(line: str) -> str:
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
