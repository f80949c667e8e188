"""YAML of unknown origin is refused before it can end the process, fill the memory or take for ever."""

import msgspec
import pytest

from gpucheck.foreign import documents
from gpucheck.foreign.documents import DocumentProblem, compose, load, parse

DEEP = "- " * 30_000
BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join(['*a' + str(n - 1)] * 10)}]\n" for n in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (DEEP, 1, "nested more than 32 deep"),
        ("[" * 30_000, 1, "nested more than 32 deep"),
        ("? " * 30_000, 1, "nested more than 32 deep"),
        ("\n".join(" " * n + "a:" for n in range(40)), 33, "nested more than 32 deep"),
        (BOMB, 1, "aliases"),
        ("a: 1\nb: *a", 2, "aliases"),
        ("a: &a\n  b: *a", 1, "anchors"),
        ("a: 1\nb: !!timestamp x", 2, "tags"),
        ('!!float ""', 1, "tags"),
        ("!!python/object/apply:os.system [ls]", 1, "tags"),
        ("a: 1\n---\nb: 2", 2, "another document"),
        ("a: [1\n", 2, "not YAML"),
        ("a\0", None, "not YAML"),
        ("a: \ud800", None, "a value cannot be read"),
        ("%TAG !a! b\n" * 100_000, None, "begin with %"),
    ],
)
@pytest.mark.parametrize("reader", [compose, load])
def test_hostile_yaml_is_refused_with_its_line(reader, text, line, words):
    with pytest.raises(DocumentProblem, match=words) as problem:
        reader(text)

    assert problem.value.line == line
    assert len(str(problem.value)) < 200


@pytest.mark.parametrize("text", ["a: 2001-13-40", "a: 0x_", "a: " + "1" * 5000], ids=["date", "hex", "digits"])
def test_a_value_that_yaml_cannot_convert_is_refused(text):
    with pytest.raises(DocumentProblem, match="a value cannot be read") as problem:
        load(text)

    assert len(str(problem.value)) < 200


def test_the_number_of_values_is_bounded():
    with pytest.raises(DocumentProblem, match="more than 10 values"):
        load("[1, 2, 3, 4, 5,\n6, 7, 8, 9, 10]", 10)

    assert load("[1, 2, 3, 4, 5,\n6, 7, 8, 9]", 10) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_nothing_is_composed_of_what_is_refused(monkeypatch):
    """The C composer recurses: what it is given must have been refused before."""
    monkeypatch.setattr(documents.yaml, "compose", lambda *_, **__: pytest.fail("composed"))

    for text in (DEEP, BOMB):
        with pytest.raises(DocumentProblem):
            compose(text)


def test_honest_yaml_is_read():
    assert load("%YAML 1.2\n---\na: !!str 5\nb: [1, {c: null}]\n") == {"a": "5", "b": [1, {"c": None}]}
    assert load("# nothing") is None


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
@pytest.mark.parametrize("trusted", [True, False])
def test_a_wrong_type_names_the_line(text, line, says, trusted):
    with pytest.raises(DocumentProblem, match=rf"^here\.yml:{line}: ") as caught:
        parse(text, "here.yml", Table, trusted=trusted)

    assert says in str(caught.value)
