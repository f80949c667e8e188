"""Tables of a terminal."""

import pytest

from gpucheck.render.write.terminal import table

HEADER = ("GPU", "fp32", "tf32", "read")
ROWS = [("0", "59.9 (90%)", "395 (78%)", "3009 (90%)"), ("1", "60", "-", "3026 (90%)")]


def test_a_table_that_fits_is_whole():
    assert table(HEADER, ROWS, 80) == table(HEADER, ROWS)
    assert len(table(HEADER, ROWS)) == 3


@pytest.mark.parametrize("room", [16, 20, 30])
def test_a_wider_table_goes_on_below_with_its_first_column(room):
    lines = table(HEADER, ROWS, room)
    parts = "\n".join(lines).split("\n\n")

    assert all(len(line) <= room for line in lines)
    assert all(part.startswith("GPU") and part.count("\n0 ") == part.count("\n1 ") == 1 for part in parts)
    assert [name for part in parts for name in part.splitlines()[0].split()[1:]] == list(HEADER[1:])
