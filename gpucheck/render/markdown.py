"""GitHub-flavored Markdown: nothing in a host's text has a meaning to it, and every table has a header row."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from gpucheck.printable import folded

Change = Callable[[str], str]
# What Markdown, or HTML inside it, would read as more than text.
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!@$])")
# Paths of the kernel, which contain no user-defined name; a pattern in them does not end a path.
KERNEL_PATH = re.compile(r"(/(?:sys|proc)/[\w./*:-]*)")


def unchanged(text: str) -> str:
    """Return the text: nothing is redacted."""
    return text


class Markdown:
    """Text for one page. change: what is done to every text of a host, such as redaction."""

    def __init__(self, change: Change = unchanged) -> None:
        self.change = change

    def text(self, text: str) -> str:
        """Return the text on one line, nothing in it of a meaning to Markdown."""
        return SPECIAL.sub(r"\\\1", folded(self._changed(text)))

    def code(self, command: str, *, in_table: bool = True) -> str:
        """Return the command as code. in_table: a pipe in code must be escaped there, and may not be elsewhere."""
        shown = folded(self._changed(command)).strip()
        # A code span that holds backticks is fenced by more of them than it holds in a row.
        fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
        inner = f" {shown} " if shown.startswith("`") or shown.endswith("`") else shown
        return f"{fence}{inner}{fence}".replace("|", "\\|" if in_table else "|")

    def _changed(self, text: str) -> str:
        """The text after redaction. Split at paths of the kernel: they are few, and a name is never part of one."""
        if self.change is unchanged:
            return text
        return "".join(part if i % 2 else self.change(part) for i, part in enumerate(KERNEL_PATH.split(text)))


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> Iterator[str]:
    """Yield the lines of a table; cells are Markdown already. right: columns of numbers.

    Columns that no row has anything in are left out, but for the first.
    """
    cells = [list(row) for row in rows]
    kept = [i for i in range(len(header)) if not i or any(row[i] for row in cells)]
    yield _line([header[i] for i in kept])
    yield _line(["---:" if i in right else "---" for i in kept])
    yield from (_line([row[i] for i in kept]) for row in cells)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
