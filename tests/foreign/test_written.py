"""What a person wrote: every value by its type, every mistake with its line and key."""

from typing import Literal

import msgspec
import pytest

from gpucheck.foreign.documents import DocumentProblem
from gpucheck.foreign.written import Misplaced, Written, flag, number, whole


class Link(msgspec.Struct, frozen=True, kw_only=True):
    width: int
    read: Literal["idle", "load"] | None = None


class File(msgspec.Struct, frozen=True, kw_only=True):
    version: str = ""
    ecc: bool | None = None
    rate: float | dict[str, float] | None = None
    links: tuple[Link, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    limits: dict[str, str] = {}


def read(text: str | bytes, unknown: bool = True) -> File:
    return Written(text, "f.yml", unknown=unknown).read(
        File,
        texts={"width": whole(1, 32), "links": lambda text: [] if text == "none" else text},
        blocks={"limits": limits},
        lists={"pairs[]": list},
        schema="f/1",
    )


def limits(found: dict[str, str]) -> dict[str, str]:
    for key in found:
        if key == "bad":
            raise Misplaced(key, "is bad")
    return found


def test_each_value_is_read_by_its_type():
    text = (
        "schema: f/1\nversion: 13.10\necc: Yes\nrate: {NV18: 1e2}\nlinks: [{width: 0x10, read: LOAD}]\nlimits: {a: no}"
    )

    assert read(text) == File(
        version="13.10", ecc=True, rate={"NV18": 100.0}, links=(Link(width=16, read="load"),), limits={"a": "no"}
    )
    assert read("rate: 3\nlinks: none\npairs: [[0, 1]]") == File(rate=3.0, pairs=((0, 1),))


def test_unknown_is_as_if_it_were_not_there():
    assert read("ecc: unknown\nrate: ~\nversion: n/a\n") == File()
    assert read("version: unknown", unknown=False) == File(version="unknown")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version: 1\nlnks: []", "f.yml:2: lnks: no such key. Did you mean links? Known here: version, ecc"),
        ("links:\n- width: 1\n- {read: idle}", "f.yml:3: links[1]: required key width is missing"),
        ("links:\n- width: 1\n  read: lod", "f.yml:3: links[0].read: lod is not possible. Did you mean load?"),
        ("links: [{width: 64}]", "f.yml:1: links[0].width: 64 is not between 1 and 32"),
        ("links: {width: 64}", "f.yml:1: links: must be a list"),
        ("links: [[1]]", "f.yml:1: links[0]: this must be 'key: value' lines"),
        ("version: [1]", "f.yml:1: version: must be a single value"),
        ("pairs: [[1, 2, 3]]", "f.yml:1: pairs[0]: Expected `array` of length 2"),
        ("limits:\n  a: 1\n  bad: 2", "f.yml:3: limits.bad: is bad"),
        ("ecc: 1\necc: 0", "f.yml:2: ecc: stated twice"),
        ("ecc: maybe", "f.yml:1: ecc: maybe is neither true nor false"),
        ("schema: f/2", "f.yml:1: schema: f/2 is not f/1"),
        ("? [a]\n: b", "f.yml:1: a key must be one word"),
        ("- a", "f.yml:1: this must be 'key: value' lines"),
        ("a: &b 1", "f.yml:1: anchors"),
        (b"a: \xff", "f.yml: byte 3: not UTF-8 text"),
        ("".join(f"k{n}: 1\n" for n in range(300)), "f.yml:1: has 300 entries, more than the 256"),
    ],
)
def test_a_mistake_names_line_and_key(text, words):
    with pytest.raises(DocumentProblem) as problem:
        read(text)

    assert str(problem.value).startswith(words)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    ("reader", "text", "words"),
    [
        (number, "12 GiB/s", "is in GiB"),
        (number, "12 GB/s", "has a unit"),
        (number, "nan", "is not a measurement"),
        (number, "-1", "is negative"),
        (number, "1e99", "out of any range"),
        (number, "1e999", "out of any range"),
        (number, "1e-320", "out of any range"),
        (number, "fast", "is not a number"),
        (whole(0, 9), "ten", "is not a whole number"),
        (flag, "", "is neither true nor false"),
    ],
)
def test_what_is_no_value_is_refused_with_the_reason(reader, text, words):
    with pytest.raises(ValueError, match=words):
        reader(text)
