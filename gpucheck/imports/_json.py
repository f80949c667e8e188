"""JSON of unknown origin, typed as it is looked at."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gpucheck.imports._problem import ImportProblem


def decode(lines: Sequence[str], tool: str) -> dict[str, Any]:
    """The object; a comma after it is not read. Raises ImportProblem where it is cut short or damaged."""
    try:
        value = msgspec.json.decode("\n".join(lines).rstrip().rstrip(",").encode("utf-8", errors="replace"))
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        why = " ".join(str(error).split())[:120]
        raise ImportProblem(
            f"{tool}: damaged JSON", why=why, do="Save the file again; it is cut short or edited"
        ) from None
    if not isinstance(value, dict):
        raise ImportProblem(
            f"{tool}: not a JSON object", where="line 1", why="it holds something else", do="Save it again"
        )
    return value


def rows_of(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; nothing for anything else."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """A string, empty for anything else."""
    return value if isinstance(value, str) else ""
