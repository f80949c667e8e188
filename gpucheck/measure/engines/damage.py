"""Classify data corruption from the wrong words, whose pattern encodes their original position."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gpucheck.measure.engines.pattern import WORD, index_of, word_at
from gpucheck.measure.values import Damage, Wrong

FEW_BITS = 3  # more differing bits mean another word, not bit flips
MOST = 0.9  # minimum part of the sample with one type of corruption


class Suspects(NamedTuple):
    """The patterns that a wrong word may come from. words: length of the region.

    key: the expected pattern. stale: those of earlier rounds. others: by name, those of other pairs.
    """

    key: int
    poison: int
    words: int
    stale: tuple[int, ...] = ()
    others: tuple[tuple[str, int], ...] = ()


def classify(wrong: Sequence[Wrong], suspects: Suspects) -> tuple[Damage, str]:
    """Return the corruption type of most of the sample, and its description. Raises ValueError without a sample."""
    if not wrong:
        raise ValueError("there is no wrong word to classify")
    kinds = [_one(word, suspects) for word in wrong]
    (kind, detail), _ = Counter(kinds).most_common(1)[0]
    same = sum(k == kind for k, _ in kinds)
    if same < MOST * len(kinds):
        counts = Counter(k for k, _ in kinds)
        return "mixed", ", ".join(f"{n} of {len(kinds)} sampled words {k}" for k, n in counts.most_common())
    return kind, detail


def _one(wrong: Wrong, suspects: Suspects) -> tuple[Damage, str]:
    got, expected = wrong.got, word_at(suspects.key, wrong.index)
    if got == suspects.poison:
        return "untouched", "the destination still has its data from before the copy"
    if got == 0:
        return "zeros", "zeros arrived in place of the data"
    if (got ^ expected).bit_count() <= FEW_BITS:
        return "bit-flip", "single bits of a word differ"
    where = index_of(suspects.key, got)
    if where < suspects.words:
        return "shifted", f"the data arrived {(wrong.index - where) * WORD} bytes from its position"
    if any(index_of(key, got) < suspects.words for key in suspects.stale):
        return "stale", "the data of an earlier round arrived"
    for name, key in suspects.others:
        if index_of(key, got) < suspects.words:
            return "other-pair", f"the data of {name} arrived"
    return "mixed", "words that no buffer of this run contained"
