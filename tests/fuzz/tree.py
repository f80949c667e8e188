"""Mutations of a document's tree: most keep the types, so that the input gets past the reader to what follows it."""

import json
import math
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from tests.fuzz import hostile

INTEGERS = (0, -1, 1, 2, 3, 64, 255, 65536, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**30, -(2**63))
FLOATS = (0.0, -0.0, 0.5, 1e-9, 1e-320, 5e-324, 1e9, 1e18, 1e300, 1.7e308, -1e308)
STRINGS = (*hostile.STRINGS, *hostile.NUMBERS[:12])
RAW = (
    *("NaN", "Infinity", "1e999", "-1e999", "1" + "0" * 400, '"\\ud800"', "[" * 400 + "]" * 400),
    *('{"a":' * 400 + "1" + "}" * 400,),
)
PLACE = "@raw@"
"""A string that becomes JSON which no encoder would write."""


def parsed(data: bytes) -> Any:
    """The tree of a JSON document, None where it is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def changed(tree: Any, random: Random, others: Sequence[Any]) -> Any:
    """The tree with one to five changes; what is not changed is shared with it."""
    for _ in range(min(1 + int(random.expovariate(0.6)), 5)):
        tree = _changed(tree, random, others)
    return tree


def revalued(tree: Any, random: Random) -> Any:
    """The tree with other texts and fractions in one to eight places and the same shape: answers of a true host."""
    for _ in range(random.choice((1, 2, 4, 8))):
        tree = _revalued(tree, random)
    return tree


def _revalued(tree: Any, random: Random) -> Any:
    if isinstance(tree, dict) and tree:
        key = random.choice(list(tree))
        return {**tree, key: _revalued(tree[key], random)}
    if isinstance(tree, list) and tree:
        at = random.randrange(len(tree))
        return [*tree[:at], _revalued(tree[at], random), *tree[at + 1 :]]
    return _of_scalar(tree, random) if isinstance(tree, str | float) else tree


def encoded(tree: Any, random: Random) -> bytes:
    """As JSON; the marked places as what no encoder writes."""
    try:
        text = msgspec.json.encode(tree)
    except (OverflowError, ValueError):  # an integer of more than 64 bits
        text = json.dumps(tree).encode()
    place = f'"{PLACE}"'.encode()
    while place in text:
        text = text.replace(place, random.choice(RAW).encode(), 1)
    return text


def _changed(tree: Any, random: Random, others: Sequence[Any]) -> Any:
    """Down a random way, and one change at its end."""
    if isinstance(tree, dict) and tree and random.random() < 0.9:
        key = random.choice(list(tree))
        return {**tree, key: _changed(tree[key], random, others)}
    if isinstance(tree, list) and tree and random.random() < 0.85:
        at = random.randrange(len(tree))
        return [*tree[:at], _changed(tree[at], random, others), *tree[at + 1 :]]
    if random.random() < 0.12:
        return _other(tree, random, others)
    if isinstance(tree, dict):
        return _of_dict(tree, random, others)
    if isinstance(tree, list):
        return _of_list(tree, random)
    return _of_scalar(tree, random)


def _of_scalar(value: Any, random: Random) -> Any:
    if isinstance(value, bool) or value is None:
        return random.choice((True, False, None))
    if isinstance(value, int):
        return random.choice((random.choice(INTEGERS), value + 1, -value, value * 1000))
    if isinstance(value, float):
        made = random.choice((random.choice(FLOATS), value * 2, value / 1e6, -value, value * 1e12))
        return made if math.isfinite(made) else 0.0
    return _of_string(str(value), random)


def _of_string(value: str, random: Random) -> str:
    word = random.choice(STRINGS)
    long = random.choice(hostile.LONG) * random.choice((10, 10, 70, 70, 300, 300, 300, 5000))
    return random.choice(
        (word, word, word, value + word, word + value, value[: len(value) // 2], value * 2, long, value.upper())
    )


def _of_list(value: list[Any], random: Random) -> list[Any]:
    if not value:
        return [random.choice((None, 1, "x", [], {}))]
    at = random.randrange(len(value))
    kind = random.randrange(5)
    if kind == 0:
        return value[:at] + value[at + 1 :]
    if kind == 1:
        return value[:at] + value[at : at + 1] * random.choice((2, 2, 2, 3, 9, 70, 300)) + value[at + 1 :]
    if kind == 2:
        return value[:at]
    if kind == 3:
        return value[::-1]
    return value + value


def _of_dict(value: dict[str, Any], random: Random, others: Sequence[Any]) -> dict[str, Any]:
    keys = list(value)
    kind = random.randrange(4)
    if not keys or kind == 0:
        return {**value, random.choice(STRINGS): value[random.choice(keys)] if keys else 1}
    key = random.choice(keys)
    if kind == 1:
        return {name: inner for name, inner in value.items() if name != key}
    if kind == 2:
        return {_of_string(name, random) if name == key else name: inner for name, inner in value.items()}
    if len(keys) > 1:
        return {**value, key: value[random.choice(keys)]}
    return {}


def _other(value: Any, random: Random, others: Sequence[Any]) -> Any:
    """Another type, or a part of another document."""
    kind = random.randrange(8)
    if kind == 0:
        return [value]
    if kind == 1:
        return {"a": value}
    if kind == 2:
        return PLACE
    if kind == 3:
        return random.choice(others)
    return random.choice((None, True, 0, 1.5, "", [], {}, random.choice(INTEGERS), random.choice(STRINGS)))
