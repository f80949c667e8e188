"""A damaged table is one clear message with file and line, whatever is wrong with it."""

import pytest

from gpucheck.knowledge import KnowledgeError, _load
from gpucheck.knowledge._load import table


def test_a_missing_table_says_which():
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
