"""Tables: a damaged one is one message with file and line; rows of your site replace and extend the shipped ones."""

import math
import sys

import pytest
import yaml

from gpucheck.knowledge import KnowledgeError, _load, find_gpu, gpus_of_family, similar_gpus
from gpucheck.knowledge._load import merged_table, table


def test_missing_table_is_named():
    with pytest.raises(KnowledgeError, match=r"nowhere\.yml"):
        table("nowhere.yml", dict)


def test_a_damaged_table_is_a_problem_of_the_installation(tmp_path, monkeypatch):
    monkeypatch.setattr(_load, "FOLDER", tmp_path)
    (tmp_path / "new.yml").write_text("a: b: c")

    with pytest.raises(KnowledgeError, match=r"new\.yml:1: not YAML: .* reinstall gpucheck"):
        table("new.yml", dict)


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


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("GTX 1080 Ti", "GeForce GTX 1080 Ti"),
        ("3080", "GeForce RTX 3080"),
        ("4090 D", "GeForce RTX 4090 D"),
        ("RTX 8000", "Quadro RTX 6000 or 8000"),
        ("Tesla P100-PCIE-16GB", "Tesla P100-PCIE"),
        ("0x15F8", "Tesla P100-PCIE"),
        ("10de:15F8", "Tesla P100-PCIE"),
        ("h100 sxm", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("Tesla V100-SXM2-16GB-N", "Tesla V100-SXM2"),
    ],
)
def test_a_gpu_is_found_by_the_names_it_goes_by(text, name):
    found = find_gpu(text)

    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("text", ["RTX 4090 Ti", "P100", "A100", "ffff", "", "GTX 2000"])
def test_what_is_not_exactly_one_product_is_not_guessed(text):
    """A P100 may be PCIe or SXM2, and there is no 4090 Ti."""
    assert find_gpu(text) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("P100", {"Tesla P100-PCIE", "Tesla P100-SXM2"}),
        ("Tesla V100", {"Tesla V100-PCIE", "Tesla V100-SXM2", "Tesla V100-SXM3"}),
        ("A100 SXM 80GB", {"NVIDIA A100-SXM4-80GB"}),
        ("H100", {"NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL"}),
        ("Tesla P100-PCIE-16GB", set()),
        ("H1000", set()),
        ("", set()),
    ],
)
def test_a_name_without_particulars_means_every_board_it_fits(text, names):
    """Words must match whole: H1000 is no H100, and a full name is no family."""
    assert {gpu.name for gpu in gpus_of_family(text)} == names


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("P100", "Tesla P100-PCIE"),
        ("H1000", "NVIDIA H100 80GB HBM3"),
        ("RTX 4091", "GeForce RTX 4090"),
        ("H10O", "NVIDIA H100 PCIe"),
    ],
)
def test_a_name_that_is_near_is_offered(text, name):
    assert name in similar_gpus(text)
