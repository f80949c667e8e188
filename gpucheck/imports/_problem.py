"""The one error of this package."""

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
