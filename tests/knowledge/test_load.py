"""Tables: a damaged one is one message with file and line; rows of your site replace and extend the shipped ones."""

import pytest

from gpucheck.knowledge import KnowledgeError, _load
from gpucheck.knowledge._load import merged_table, table


def test_missing_table_is_named():
    with pytest.raises(KnowledgeError, match=r"nowhere\.yml"):
        table("nowhere.yml", dict)


def test_a_damaged_table_is_a_problem_of_the_installation(tmp_path, monkeypatch):
    monkeypatch.setattr(_load, "FOLDER", tmp_path)
    (tmp_path / "new.yml").write_text("a: b: c")

    with pytest.raises(KnowledgeError, match=r"new\.yml:1: not YAML: .* reinstall gpucheck"):
        table("new.yml", dict)


def test_a_table_is_parsed_once():
    from gpucheck.knowledge import gpu_table

    assert gpu_table() is gpu_table()


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
