"""Tables: a damaged one is one message with file and line; rows of your site replace and extend the shipped ones."""

import math
import sys

import pytest
import yaml

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


def leaves(value):
    if isinstance(value, dict):
        for key, entry in value.items():
            yield key
            yield from leaves(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from leaves(entry)
    else:
        yield value


@pytest.mark.parametrize("path", sorted(_load.FOLDER.rglob("*.yml")), ids=lambda path: path.name)
def test_a_table_has_only_what_its_compiled_form_can_hold(path):
    """JSON has no dates and no infinity."""
    table = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)

    for leaf in leaves(table):
        assert leaf is None or isinstance(leaf, str | bool | int) or math.isfinite(leaf)


@pytest.fixture
def numbers(tmp_path, monkeypatch):
    """A table of numbers that can be changed, with its compiled form."""
    monkeypatch.setattr(_load, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    table = tmp_path / "numbers.yml"

    def read(text=None):
        if text is not None:
            table.write_text(text)
        _load._parsed.pop("numbers.yml", None)
        return _load.table("numbers.yml", dict[int, float])

    yield read
    _load._parsed.pop("numbers.yml", None)


def test_a_compiled_table_is_the_table_until_that_changes(numbers, tmp_path):
    first = numbers("1: 2")
    compiled = tmp_path / "__pycache__" / "numbers.yml.json"
    again = compiled.read_bytes()

    assert (first, numbers(), compiled.read_bytes()) == ({1: 2.0}, {1: 2.0}, again)
    assert numbers("1: 2.5") == {1: 2.5}
    assert compiled.read_bytes() != again


@pytest.mark.parametrize("content", [b"", b"1 2", b"\xff\n{}", None])
def test_a_damaged_compiled_table_is_not_believed(numbers, tmp_path, content):
    numbers("1: 2")
    compiled = tmp_path / "__pycache__" / "numbers.yml.json"
    head = compiled.read_bytes().partition(b"\n")[0]
    compiled.write_bytes(head + b'\n{"1": "x"' if content is None else content)

    assert numbers() == {1: 2.0}


def test_a_folder_that_cannot_be_written_costs_nothing(numbers, tmp_path):
    (tmp_path / "__pycache__").write_text("a file in its place")

    assert numbers("3: 4") == {3: 4.0}
