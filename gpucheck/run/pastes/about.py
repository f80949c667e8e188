"""Findings of pasted text: its messages, and what is damaged, contradicts something else or covers some GPUs only."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gpucheck.knowledge.codes import Subject
from gpucheck.knowledge.messages import KnownMessage
from gpucheck.knowledge.messages import row as known_message
from gpucheck.model import Finding, Verdict
from gpucheck.model.diagnosis import UnreadRange
from gpucheck.model.paste import Message, Part
from gpucheck.printable import counted

PASTE = Subject(check="paste")
MOST_DAMAGED, MOST_LINES = 8, 8
GIVEN = "--observations"
MOST_SHOWN = 5
WORST = ("fail", "warn", "unknown")
LONGEST = 500  # characters of a line that are evidence


def place(part: Part) -> str:
    """Return where a part stands: ``issue.txt lines 3-9 (nvbandwidth)``. What has no lines was given as values."""
    if not part.ranges:
        return GIVEN
    one = part.ranges[0]
    return f"{one.source} lines {one.first_line}-{part.ranges[-1].last_line} ({one.kind})"


def damaged(unread: Sequence[UnreadRange]) -> Iterator[Finding]:
    """Output of a known tool that could not be read, or not all of it. What it holds may be a fault."""
    rows = [row for row in unread if row.why]
    for row in rows[:MOST_DAMAGED]:
        seen = f"{_lines(row)}: damaged or incomplete"
        yield PASTE.with_evidence(row.text, row.why).unknown("pastes.output-damaged", seen)
    if more := rows[MOST_DAMAGED:]:
        subject = PASTE.with_evidence(*(f"{_lines(row)}: {row.why}" for row in more[:MOST_LINES]))
        seen = f"{counted(len(more), 'more place')}: damaged or incomplete"
        yield subject.unknown("pastes.output-damaged", seen)


def _lines(row: UnreadRange) -> str:
    span = f"{row.first_line}-{row.last_line}" if row.last_line > row.first_line else f"{row.first_line}"
    return f"{row.source} line{'s' if row.last_line > row.first_line else ''} {span}"


def contradiction(one: str, other: str, differing: Sequence[str]) -> Finding:
    """Two parts of one machine that cannot both be true of one time. Each was evaluated."""
    subject, seen = PASTE.with_evidence(*differing[:MOST_LINES]), f"{one} contradicts {other}; each was evaluated"
    return subject.unknown("pastes.values-differ", seen, count=len(differing))


def other_machine(one: str, other: str, why: str) -> Finding:
    """A part that cannot be of the machine of the others, and was evaluated by itself."""
    seen = f"{one} does not fit {other}; evaluated separately"
    return PASTE.with_evidence(why).unknown("pastes.other-machine", seen)


def no_host(parts: Sequence[Part]) -> Finding:
    """Parts that name no host, in a text that names several."""
    seen = f"{place(parts[0])}: host not known; evaluated separately"
    return PASTE.with_evidence(*map(place, parts[:MOST_LINES])).unknown("pastes.host-not-named", seen)


def some_gpus(part: Part, count: int, most: int) -> Finding:
    """A run that used fewer GPUs than the machine has. count: of the run, or of the machine if a list has `most`."""
    return PASTE.unknown("pastes.gpus-not-covered", f"{place(part)}: {count} of {most} GPUs", count=most - count)


def no_evidence(parts: Sequence[Part]) -> Finding:
    """Text that was read and shows nothing of the host, with what it does mean."""
    meanings = dict.fromkeys(known_message(message.key) for part in parts for message in part.messages)
    answers = [one.says for one in meanings if one.verdict == "pass" and one.why]
    looked_at = dict.fromkeys(words for part in parts for words in part.looked_at)
    subject = PASTE.with_evidence(*(f"looked at {words}" for words in [*looked_at][:MOST_LINES]))
    return subject.unknown("pastes.no-evidence", "; ".join(answers[:2]) or "nothing about the state of the host")


def too_many(parts: Sequence[Part]) -> Finding:
    """What was left when the limit of machines in one text was reached."""
    subject, seen = PASTE.with_evidence(*map(place, parts[:MOST_LINES])), f"{counted(len(parts), 'part')} not evaluated"
    return subject.unknown("pastes.too-many-machines", seen)


# gpu_burn calls a GPU faulty at the end if results were wrong, and also if its process had died.
WRONG, FAULTY, DIED = (f"cuda-error.gpu-burn{end}" for end in ("", "-faulty", "-died"))


def of_messages(messages: Iterable[Message]) -> Iterator[Finding]:
    """One finding for each cause and GPU, or for each meaning without a cause, with the lines as evidence.

    The worst of the meanings leads. Harmless messages give none, and bare ones none next to others.
    """
    known = [(message, known_message(message.key)) for message in messages]
    known = [(message, meaning) for message, meaning in known if meaning.verdict != "pass"]
    known = [one for one in known if not one[1].bare] or known
    keys = {message.key for message, _ in known}
    if DIED in keys and WRONG not in keys:
        known = [one for one in known if one[0].key != FAULTY]
    groups: dict[tuple[str, str | None], list[tuple[Message, KnownMessage]]] = {}
    for message, meaning in known:
        groups.setdefault((meaning.cause or message.key, message.gpu), []).append((message, meaning))
    for (_, gpu), members in groups.items():
        known_as = min((meaning for _, meaning in members), key=lambda meaning: WORST.index(meaning.verdict))
        texts = (message.text for message, _ in members)
        lines = [*dict.fromkeys(text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..." for text in texts)]
        more = len(lines) - MOST_SHOWN
        evidence = (*lines[:MOST_SHOWN], *((f"and {more} more",) if more > 0 else ()))
        check, name = known_as.key.split(".", 1)[0], "host" if gpu is None else f"gpu:{gpu}"
        values: dict[str, Any] = {"message": known_as.key, "meaning": known_as.why or known_as.says}
        values |= {"cause": known_as.cause, "confidence": known_as.confidence, "advice": known_as.steps}
        subject, verdict = Subject(check=check, name=name, evidence=evidence), Verdict(known_as.verdict)
        yield subject.finding(verdict, "message.known-line", known_as.says, **values)
