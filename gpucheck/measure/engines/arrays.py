"""Patterns and comparisons over NumPy arrays. The library is an argument, as importing it is slow."""

from typing import Any

from gpucheck.measure.engines.pattern import MASK, pattern_array, signed
from gpucheck.measure.values import Comparison, Wrong

SAMPLE = 64


def pattern(library: Any, key: int, words: int) -> Any:
    """Return the first words of the pattern, as signed 64-bit integers."""
    return pattern_array(library.arange(words, dtype=library.int64), key)


def compare(library: Any, array: Any, key: int) -> Comparison:
    """Compare a buffer with the pattern of this key; returns some of the wrong words."""
    wrong = library.flatnonzero(array != pattern(library, key, len(array)))
    count = len(wrong)
    if not count:
        return Comparison(words=len(array), mismatches=0)
    some = [int(i) for i in wrong[:: max(1, count // SAMPLE)][:SAMPLE]]
    sample = tuple(Wrong(index=i, got=int(array[i]) & MASK) for i in some)
    return Comparison(words=len(array), mismatches=count, first=int(wrong[0]), last=int(wrong[-1]), sample=sample)


def poison(array: Any, value: int) -> None:
    """Fill the array with one word."""
    array[:] = signed(value)
