"""A damaged table is one clear message with file and line, whatever is wrong with it."""

import msgspec
import pytest

from gpucheck.knowledge import KnowledgeError
from gpucheck.knowledge._load import parse, table


class Row(msgspec.Struct):
    name: str
    width: int


class Table(msgspec.Struct):
    rows: tuple[Row, ...]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("rows:\n  - {name: a, width: 1}\n  - {name: b, width: wide}\n", 3, "Expected `int`"),
        ("rows:\n  - name: a\n    width: 1\n  - name: b\n", 4, "width"),
        ("rows:\n  - [unclosed\n", 3, ""),
        ("rows: 5\n", 1, "Expected `array`"),
    ],
)
def test_a_damaged_table_names_the_line(text, line, says):
    """Whoever edited the table finds the place at once."""
    with pytest.raises(KnowledgeError, match=rf"^here\.yml:{line}: ") as caught:
        parse(text, "here.yml", Table)

    assert says in str(caught.value)


def test_a_missing_table_says_which():
    """Not a traceback from pathlib."""
    with pytest.raises(KnowledgeError, match=r"nowhere\.yml"):
        table("nowhere.yml", Table)


def test_a_table_is_parsed_once():
    """A whole run pays for each table once."""
    from gpucheck.knowledge import gpu_table

    assert gpu_table() is gpu_table()
