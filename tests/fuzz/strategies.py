"""Inputs of a target: a seed with some changes, of its bytes, lines and words, or of its tree."""

import gzip
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import yaml
from hypothesis import strategies as st

from tests.fuzz import hostile
from tests.fuzz.target import Target
from tests.shared import LOADER

MOST_BYTES = 200_000
SEPARATOR = b"\0"
"""Between the words of a command line."""
PIECES = tuple(token.encode("utf-8", "surrogatepass") for token in hostile.EVERYWHERE)
TIMES = st.sampled_from((2, 3, 7, 40, 300, 5000))
LONG = st.builds(lambda piece, times: piece * times, st.sampled_from(hostile.LONG), TIMES)
TEXTS = st.one_of(st.sampled_from((*hostile.STRINGS, *hostile.NUMBERS[:12])), LONG, st.text(max_size=20))
INTEGERS = st.one_of(st.sampled_from((0, -1, 1, 64, 65536, 2**31, 2**53, 2**63, 2**64, 10**30)), st.integers())
FLOATS = st.one_of(st.sampled_from((0.0, -0.0, 1e-320, 5e-324, 1e18, 1.7e308)), st.floats(allow_nan=False))
FINITE = FLOATS.filter(math.isfinite)
SCALARS = st.one_of(st.none(), st.booleans(), INTEGERS, FLOATS, st.sampled_from((float("nan"), float("inf"))), TEXTS)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=5
)


def inputs(target: Target) -> st.SearchStrategy[bytes]:
    """Return the inputs of a target by its format."""
    seeds = target.seeds()
    if target.format in ("text", "bytes", "arguments"):
        return _edited(seeds, (SEPARATOR, b"") if target.format == "arguments" else (b"\n", b" ", b""))
    if target.format == "json.gz":
        plain = _document(tuple(map(gzip.decompress, seeds)), json.loads).map(
            lambda text: gzip.compress(text, 1, mtime=0)
        )
        return plain | _edited(seeds, (b"",))
    if target.format == "values":
        trees = [json.loads(data) for data in seeds]
        return st.sampled_from(trees).flatmap(lambda tree: _changed(tree, 8, same_type=True)).map(_encoded)
    read = json.loads if target.format == "json" else lambda text: yaml.load(text, Loader=LOADER)  # noqa: S506 - safe
    return _document(seeds, read)


def _document(seeds: Sequence[bytes], read: Callable[[bytes], Any]) -> st.SearchStrategy[bytes]:
    """A changed tree, now and then with changes of its text too; or a seed's own text with changes."""
    trees = st.sampled_from([read(data) for data in seeds]).flatmap(lambda tree: _changed(tree, 5)).map(_encoded)
    return trees | trees.flatmap(lambda data: _edited((data,), (b",", b""))) | _edited(seeds, (b"\n", b" ", b""))


def _encoded(tree: Any) -> bytes:
    return json.dumps(tree, default=str).encode()


@st.composite
def _edited(draw: st.DrawFn, seeds: Sequence[bytes], separators: Sequence[bytes]) -> bytes:
    """A seed of which up to six spans are left out, repeated, or replaced by hostile pieces or by parts of a seed."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 6))):
        separator = draw(st.sampled_from(separators))
        parts = data.split(separator) if separator else [data[at : at + 1] for at in range(len(data))]
        start = draw(st.integers(0, len(parts)))
        end = draw(st.integers(start, min(len(parts), start + 64)))
        middle = draw(_instead(separator.join(parts[start:end]), separator, draw(st.sampled_from(seeds))))
        data = separator.join([*parts[:start], *middle, *parts[end:]])[:MOST_BYTES]
    return data


def _instead(span: bytes, separator: bytes, other: bytes) -> st.SearchStrategy[list[bytes]]:
    """What takes the place of a span. other: a seed."""
    pieces = (
        st.sampled_from(PIECES),
        LONG.map(str.encode),
        TIMES.map(lambda times: separator.join([span] * times)),
        st.integers(0, len(other)).map(lambda at: other[at:]),
        st.binary(max_size=8),
    )
    return st.just([]) | st.one_of(pieces).map(lambda piece: [piece])


@st.composite
def _changed(draw: st.DrawFn, tree: Any, most: int, *, same_type: bool = False) -> Any:
    """The tree with changes in up to so many places. same_type: texts and fractions alone, by others."""
    for _ in range(draw(st.integers(0, most))):
        tree = _change(draw, tree, same_type)
    return tree


def _change(draw: st.DrawFn, tree: Any, same_type: bool) -> Any:
    """Down a way, and one change at its end."""
    if isinstance(tree, dict | list) and tree and (same_type or draw(st.integers(0, 7))):
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        key = draw(st.sampled_from(keys))
        changed: Any = tree.copy()
        kind = 9 if same_type else draw(st.integers(0, 9))
        if kind == 0:
            del changed[key]
        elif kind == 1 and isinstance(tree, dict):
            changed[draw(TEXTS)] = changed.pop(key)
        elif kind == 2 and isinstance(tree, list):
            changed[key:key] = [tree[key]] * draw(st.sampled_from((1, 2, 9, 70, 300)))
        else:
            changed[key] = _change(draw, tree[key], same_type)
        return changed
    if same_type:
        return draw({str: TEXTS, float: FINITE}.get(type(tree), st.just(tree)))
    return draw(st.one_of(VALUES, st.just([tree]), st.just({"a": tree})))
