"""What every kind of dump offers, and kinds that are lines with a known meaning (knowledge/messages)."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from gpucheck.imports._text import left_out, linux_bus_id
from gpucheck.knowledge.messages import marks, meaning, speaks
from gpucheck.model.facts import Facts
from gpucheck.model.finding import Finding, Verdict
from gpucheck.model.paste import Message, Part
from gpucheck.model.topology import Topology

Blocks = Iterable[tuple[int, int]]


class AnyCase(str):
    """A text that is compared without regard to case. It is written in lower case."""

    __slots__ = ()


@dataclass(frozen=True)
class Kind:
    """One kind of dump.

    name: as users give it to --as; several kinds may share one (a tool's text and its JSON). title: how a message
    names it. parse: lines -> what they hold, None for nothing; raises ImportProblem, whose line counts from the
    first of these lines, and nothing else.

    How it is found in a text with other content. hints: every text of the kind contains one of these,
    compared as it is written; a kind without hints is always tried. line: whether a line belongs to it wherever it
    stands, as the lines of a log do; all of them are parsed together. blocks: first and last index of each stretch of
    lines that belongs to it, in order; each is parsed by itself. Both take time linear in the text. marks: every line
    of the kind holds one of these texts or patterns, so `line` is asked of no others; without any it is asked of all.
    loose: takes much for its own, so the others are tried first.
    """

    name: str
    title: str
    parse: Callable[[list[str]], Part | None]
    loose: bool = False
    hints: tuple[str, ...] = ()
    marks: tuple[str | re.Pattern[str], ...] = ()
    line: Callable[[str], bool] | None = None
    blocks: Callable[[Sequence[str]], Blocks] | None = None


# Kinds of text that are lines with a known meaning. Their patterns are in knowledge/messages.
LONGEST = 2000  # characters of a line that are looked at


def messages_in(name: str, lines: list[str]) -> tuple[Message, ...]:
    """The messages of the kind ``name`` (a file of knowledge/messages) in these lines, each with its line number."""
    found = []
    for number, line in enumerate(lines, start=1):
        known = meaning(name, line[:LONGEST])
        if known is not None:
            row, gpu = known
            bus_id = linux_bus_id(gpu) if gpu else None
            found.append(Message(key=row.key, text=line.strip()[:LONGEST], line=number, gpu=bus_id or gpu))
    return tuple(found)


def of_messages(name: str, title: str, *, exact: bool) -> Kind:
    """A kind of text whose every line stands for itself. exact: its lines are tried before those of others."""

    def parse(lines: list[str]) -> Part | None:
        found = messages_in(name, lines)
        if not found:
            return None
        return Part(messages=found, looked_at=(title,))

    texts = tuple(AnyCase(text) if folded else text for text, folded in marks(name))
    return Kind(
        name=name,
        title=title,
        parse=parse,
        loose=not exact,
        hints=texts,
        marks=texts,
        line=lambda line: speaks(name, line[:LONGEST]),
    )


class Damage(NamedTuple):
    """What is missing or contradicts itself in a topology, and the lines of it, where it has some of its own."""

    finding: Finding
    lines: tuple[int, ...] = (1,)


def of_topology(found: Topology, damage: Iterable[Damage] = ()) -> Part:
    """A topology as a part of a text. What could not be used of it is left out there, and a finding of its own."""
    damage, count = tuple(damage), len(found.gpus)
    unread = (
        left_out(min(lines), max(lines), f"{one.seen}, expected {one.wanted}: {one.why}", "; ".join(one.evidence))
        for one, lines in damage
        if one.verdict is not Verdict.SKIP
    )
    return Part(
        facts=Facts(observed=found.observations()),
        topology=replace(found, findings=tuple(one.finding for one in damage)),
        looked_at=(f"how {count} GPUs are connected",) if count > 1 else (),
        unread=tuple(unread),
    )
