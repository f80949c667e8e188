"""Inputs of a target: a seed with some changes, of its bytes, lines and words, or of its tree."""

import gzip
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import yaml
from hypothesis import strategies as st

from tests.fuzz import hostile
from tests.fuzz.target import Target
from tests.shared import LOADER

MOST_BYTES = 200_000
PIECES = tuple(token.encode("utf-8", "surrogatepass") for token in hostile.EVERYWHERE)
TIMES = st.sampled_from((2, 3, 7, 40, 300, 5000))
LONG = st.builds(lambda piece, times: piece * times, st.sampled_from(hostile.LONG), TIMES)
TEXTS = st.one_of(st.sampled_from((*hostile.STRINGS, *hostile.NUMBERS[:12])), LONG, st.text(max_size=20))
INTEGERS = st.one_of(st.sampled_from((0, -1, 1, 64, 65536, 2**31, 2**53, 2**63, 2**64, 10**30)), st.integers())
FLOATS = st.one_of(st.sampled_from((0.0, -0.0, 1e-320, 5e-324, 1e18, 1.7e308)), st.floats(allow_nan=False))
FINITE = FLOATS.filter(math.isfinite)
SCALARS = st.one_of(st.none(), st.booleans(), INTEGERS, FLOATS, st.sampled_from((float("nan"), float("inf"))), TEXTS)
MOST = 65535
PLACES = st.integers(0, MOST)
"""A place in data of any length, as a part of it."""


class Tail(NamedTuple):
    """The end of a seed."""

    seed: int
    start: int


class Edit(NamedTuple):
    """A span of so many parts is replaced: by nothing, by itself so often, by the end of a seed, or by a piece."""

    separator: int
    start: int
    length: int
    instead: bytes | int | Tail | None


# Made once: most of the time of an input went into making strategies.
PIECE = st.one_of(
    st.sampled_from(PIECES), LONG.map(str.encode), TIMES, st.builds(Tail, PLACES, PLACES), st.binary(max_size=8)
)
EDITS = st.lists(st.builds(Edit, PLACES, PLACES, st.integers(0, 64), st.none() | PIECE), max_size=6)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=5
)


def inputs(target: Target) -> st.SearchStrategy[bytes]:
    """Return the inputs of a target by its format."""
    seeds = target.seeds()
    if target.format in ("text", "bytes"):
        return _edited(seeds, (b"\n", b" ", b""))
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


def _edited(seeds: Sequence[bytes], separators: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """A seed of which up to six spans are left out, repeated, or replaced by hostile pieces or by parts of a seed."""
    return st.builds(lambda data, edits: _applied(data, edits, seeds, separators), st.sampled_from(seeds), EDITS)


def _applied(data: bytes, edits: Sequence[Edit], seeds: Sequence[bytes], separators: Sequence[bytes]) -> bytes:
    for edit in edits:
        separator = separators[edit.separator % len(separators)]
        parts = data.split(separator) if separator else data
        start = edit.start * len(parts) // MOST
        end = min(len(parts), start + edit.length)
        if isinstance(parts, bytes):
            data = parts[:start] + _instead(edit.instead, parts[start:end], separator, seeds) + parts[end:]
        else:
            middle = _instead(edit.instead, separator.join(parts[start:end]), separator, seeds)
            data = separator.join([*parts[:start], *([middle] if edit.instead is not None else []), *parts[end:]])
        data = data[:MOST_BYTES]
    return data


def _instead(chosen: bytes | int | Tail | None, span: bytes, separator: bytes, seeds: Sequence[bytes]) -> bytes:
    """What takes the place of a span."""
    if isinstance(chosen, Tail):
        other = seeds[chosen.seed % len(seeds)]
        return other[chosen.start * len(other) // MOST :]
    if isinstance(chosen, int):
        return separator.join([span] * min(chosen, 1 + MOST_BYTES // (len(span) + 1)))
    return chosen or b""


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
