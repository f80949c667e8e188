"""What every kind of dump offers."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpucheck.model.paste import Part

Blocks = Iterable[tuple[int, int]]

TOPOLOGY = "topology"
MEASUREMENTS = "measurements"


class AnyCase(str):
    """A text that is compared without regard to case. It is written in lower case."""

    __slots__ = ()


@dataclass(frozen=True)
class Kind:
    """One kind of dump.

    name: as users give it to --as; several modules may share one (a tool's text and its JSON). title: how a message
    names it. parse: lines -> what they hold; raises ImportProblem, whose ``line N`` counts from the first of these
    lines, and nothing else.

    How it is found in a text with other content. hints: every text of the kind contains one of these,
    compared as it is written; a kind without hints is always tried. line: whether a line belongs to it wherever it
    stands, as the lines of a log do; all of them are parsed together. blocks: first and last index of each stretch of
    lines that belongs to it, in order; each is parsed by itself. Both take time linear in the text. marks: every line
    of the kind holds one of these texts or patterns, so `line` is asked of no others; without any it is asked of all.
    loose: takes much for its own, so the others are tried first.

    holds: what it is about; TOPOLOGY when its parts have one. command: which command reads it.
    """

    name: str
    title: str
    parse: Callable[[list[str]], Part]
    holds: str = "messages"
    command: str = "gpucheck diagnose FILE"
    loose: bool = False
    hints: tuple[str, ...] = ()
    marks: tuple[str | re.Pattern[str], ...] = ()
    line: Callable[[str], bool] | None = None
    blocks: Callable[[Sequence[str]], Blocks] | None = None

    def takes(self, lines: Sequence[str]) -> bool:
        """Whether any of these lines belongs to it."""
        if self.line is not None:
            return any(map(self.line, lines))
        return self.blocks is not None and next(iter(self.blocks(lines)), None) is not None
