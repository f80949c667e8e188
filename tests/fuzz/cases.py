"""The input of one case, made from the seed, the target and the number of the case alone."""

import gzip
import re
from functools import cache
from random import Random
from typing import Any

from tests.fuzz import tree
from tests.fuzz.mutate import mutated
from tests.fuzz.target import Target

NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")
SEPARATOR = b"\0"
"""Between the words of a command line."""


def made(target: Target, seed: int, case: int) -> bytes:
    """The first cases are the seeds and the attacks as they are."""
    corpus = target.seeds()
    if case < len(whole := as_they_are(target)):
        return whole[case]
    random = Random(f"{seed} {target.name} {case}")
    number = random.randrange(len(corpus))
    if target.format == "values":
        return tree.encoded(tree.revalued(_trees(target)[number], random), random)
    packed = target.format == "json.gz"
    if packed and random.random() < 0.2:
        return mutated(corpus[number], random, corpus)
    trees = _trees(target) if target.format != "text" and random.random() < 0.7 else ()
    if trees and trees[number] is not None:
        data = tree.encoded(tree.changed(trees[number], random, trees), random)
        if random.random() < 0.1:
            data = mutated(data, random, corpus)
    else:
        plain = _unpacked(target) if packed else corpus
        data = mutated(plain[number], random, plain)
    return gzip.compress(data, 1, mtime=0) if packed else data


def as_they_are(target: Target) -> tuple[bytes, ...]:
    """What is run without a change before anything else."""
    return (*target.seeds(), *target.attacks())


@cache
def _unpacked(target: Target) -> tuple[bytes, ...]:
    return tuple(gzip.decompress(data) for data in target.seeds())


@cache
def _trees(target: Target) -> tuple[Any, ...]:
    """Of each seed; None for one that has none."""
    if target.format in ("json", "json.gz", "values"):
        plain = _unpacked(target) if target.format == "json.gz" else target.seeds()
        return tuple(tree.parsed(data) for data in plain)
    if target.format == "yaml":
        import yaml

        loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
        return tuple(_typed(yaml.load(data, Loader=loader)) for data in target.seeds())  # noqa: S506 - text alone
    return ()


def _typed(value: Any) -> Any:
    """Scalars of YAML, loaded as text, as the numbers that they look like."""
    if isinstance(value, dict):
        return {key: _typed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_typed(inner) for inner in value]
    if NUMBER.fullmatch(value):
        return float(value) if "." in value else int(value)
    return {"true": True, "false": False, "null": None}.get(value, value)
