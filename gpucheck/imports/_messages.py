"""Kinds of text that are lines with a known meaning. Their patterns are in knowledge/messages."""

from gpucheck.imports._common import linux_bus_id
from gpucheck.imports._kind import AnyCase, Kind
from gpucheck.imports._problem import absent
from gpucheck.knowledge.messages import marks, meaning, speaks
from gpucheck.model.paste import Message, Part

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

    def parse(lines: list[str]) -> Part:
        found = messages_in(name, lines)
        if not found:
            raise absent(f"text with {title}", "no line is a known message", "Give more of it")
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
