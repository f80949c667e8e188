"""Words that say where they belong: 64-bit patterns, unique by position, that can be read backwards.

Word i of a pattern is mix(key + i * STRIDE), mix being splitmix64's finalizer, a bijection of 64-bit words. A word that
arrived in the wrong place can so be asked which position of which pattern it is, without a search.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

WORD = 8  # bytes
MASK = (1 << 64) - 1
STRIDE = 0x9E3779B97F4A7C15  # odd, so that i * STRIDE is a bijection too
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_STRIDE_BACK, _FIRST_BACK, _SECOND_BACK = (pow(factor, -1, 1 << 64) for factor in (STRIDE, FIRST, SECOND))
POISON = 0xDEADBEEFC0FFEE5A


class Origin(NamedTuple):
    """Whose data a pattern is: the run's nonce, the ordered pair, the round, and which region."""

    nonce: int
    src: int
    dst: int
    round: int
    region: int = 0

    @property
    def key(self) -> int:
        """Where the pattern starts on the ring of 64-bit words. Different origins start far apart."""
        key = 0
        for part in self:
            key = mix((key + part + 1) * STRIDE & MASK)
        return key


def mix(word: int) -> int:
    """splitmix64's finalizer (Steele, Lea and Flood, 2014)."""
    word = ((word ^ (word >> 30)) * FIRST) & MASK
    word = ((word ^ (word >> 27)) * SECOND) & MASK
    return word ^ (word >> 31)


def unmix(word: int) -> int:
    """The word that ``mix`` makes this one of."""
    word = _unshift(word, 31) * _SECOND_BACK & MASK
    word = _unshift(word, 27) * _FIRST_BACK & MASK
    return _unshift(word, 30)


def _unshift(word: int, bits: int) -> int:
    answer = word
    for _ in range(64 // bits):
        answer = word ^ (answer >> bits)
    return answer


def word_at(key: int, index: int) -> int:
    """Word ``index`` of the pattern."""
    return mix((key + index * STRIDE) & MASK)


def words_at(key: int, first: int, count: int) -> list[int]:
    """``count`` words of the pattern from word ``first`` on: as word_at, without two calls for each word."""
    words = []
    for start in range(first, first + count):
        word = (key + start * STRIDE) & MASK
        word = ((word ^ (word >> 30)) * FIRST) & MASK
        word = ((word ^ (word >> 27)) * SECOND) & MASK
        words.append(word ^ (word >> 31))
    return words


def index_of(key: int, word: int) -> int:
    """The one position, of 2**64, at which this pattern holds the word."""
    return ((unmix(word) - key) * _STRIDE_BACK) & MASK


def poison_for(keys: tuple[int, ...], words: int) -> int:
    """A word that none of these patterns holds among its first ``words``, nor zero."""
    poison = POISON
    while any(index_of(key, poison) < words for key in keys):
        poison = mix(poison)
    return poison


def signed(word: int) -> int:
    """The word as a two's complement 64-bit integer, which is what array libraries count in."""
    return word - (1 << 64) if word >> 63 else word


def pattern_array(index: Any, key: int, shift: Callable[[Any, int], Any]) -> Any:
    """The same words over an array of signed 64-bit positions, with the array library's wrapping arithmetic.

    shift: a logical shift to the right, which for signed arrays needs a mask.
    """
    word = index * signed(STRIDE) + signed(key)
    word = (word ^ shift(word, 30)) * signed(FIRST)
    word = (word ^ shift(word, 27)) * signed(SECOND)
    return word ^ shift(word, 31)
