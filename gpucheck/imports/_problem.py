"""The one error of this package, and lines that a reader leaves out."""

from gpucheck.model.diagnosis import UnreadRange
from gpucheck.printable import excerpt

WHOLE = "entire input"


class ImportProblem(ValueError):
    """Input that cannot be read as what it should be.

    what: what was wanted and not got. where: the line, or WHOLE. why: what was seen there. do: the next step.
    As text it is one line of at most a few hundred characters, whatever the input was.
    """

    def __init__(self, what: str, *, why: str, do: str, where: str = WHOLE) -> None:
        super().__init__(what, where, why, do)
        self.what = what
        self.where = where
        self.why = why
        self.do = do

    def __str__(self) -> str:
        return f"{self.what} ({self.where}): {self.why}. {self.do}"


def absent(what: str, why: str, do: str) -> ImportProblem:
    """Return the problem of an input that holds nothing of a kind."""
    return ImportProblem(f"no {what} in the input", why=why, do=do)


def left_out(first: int, last: int, why: str, line: str) -> UnreadRange:
    """Return lines that a reader could not use, counted from 1 in its section. line: the first of them."""
    return UnreadRange(source="", first_line=first, last_line=last, why=why, text=excerpt(line.strip(), 60))
