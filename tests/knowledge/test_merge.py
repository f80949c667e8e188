"""Rows of a site in a shipped table: the same row is replaced in the keys that are stated, another is added."""

import pytest

from gpucheck.knowledge._merge import merged_table


@pytest.mark.parametrize(
    ("shipped", "site", "expected"),
    [
        # Keys.
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3, "d": 4}}, {"a": {"b": 1, "c": 3, "d": 4}}),
        # Lists of words.
        ({"v": ["1", "2"]}, {"v": ["2", "3"]}, {"v": ["1", "2", "3"]}),
        # The row with the same version keeps what is not stated.
        (
            {"r": [{"version": "1", "x": 1, "y": 2}]},
            {"r": [{"version": "1", "x": 5}]},
            {"r": [{"version": "1", "x": 5, "y": 2}]},
        ),
        # Numbers order versions, wherever a site adds one.
        (
            {"r": [{"version": "1.9"}, {"version": "1.11"}]},
            {"r": [{"version": "1.10"}]},
            {"r": [{"version": "1.9"}, {"version": "1.10"}, {"version": "1.11"}]},
        ),
        # The same version for another CUDA is another row.
        (
            {"r": [{"version": "2", "cuda": "12.9"}]},
            {"r": [{"version": "2", "cuda": "13.3"}]},
            {"r": [{"version": "2", "cuda": "12.9"}, {"version": "2", "cuda": "13.3"}]},
        ),
        # A list without versions keeps its order.
        ({"r": [{"name": "b"}, {"name": "a"}]}, {"r": [{"name": "c"}]}, {"r": [{"name": n} for n in "bac"]}),
        # What a file states of itself is not the table's.
        (
            {"as_of": "1", "source": ["s"]},
            {"as_of": "2", "source": ["t"], "notes": ["n"]},
            {"as_of": "1", "source": ["s"]},
        ),
        ({"a": 1}, {}, {"a": 1}),
    ],
)
def test_site_rows_replace_the_same_and_extend_otherwise(shipped, site, expected):
    assert merged_table(shipped, site) == expected
