"""Invertible 64-bit patterns: every word is unique and encodes its position.

Word i of a pattern is mix(key + i * STRIDE), mix being splitmix64's finalizer, a bijection of 64-bit words. For a word
in the wrong place, the inverse gives its position and pattern without a search.
"""

from typing import Any, NamedTuple

WORD = 8  # bytes
MASK = (1 << 64) - 1
STRIDE = 0x9E3779B97F4A7C15  # odd, so that i * STRIDE is a bijection too
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_STRIDE_BACK, _FIRST_BACK, _SECOND_BACK = (pow(factor, -1, 1 << 64) for factor in (STRIDE, FIRST, SECOND))
POISON = 0xDEADBEEFC0FFEE5A
SAMPLE = 64  # wrong words of a comparison that are kept


class Origin(NamedTuple):
    """The source of a pattern: the nonce of the run, the ordered pair, the round and the region."""

    nonce: int
    src: int
    dst: int
    round: int
    region: int = 0

    @property
    def key(self) -> int:
        """Return the start of the pattern on the ring of 64-bit words. Different origins start far apart."""
        key = 0
        for part in self:
            key = mix((key + part + 1) * STRIDE & MASK)
        return key


def mix(word: int) -> int:
    """Return splitmix64's finalizer of a word (Steele, Lea and Flood, 2014)."""
    word = ((word ^ (word >> 30)) * FIRST) & MASK
    word = ((word ^ (word >> 27)) * SECOND) & MASK
    return word ^ (word >> 31)


def unmix(word: int) -> int:
    word = _unshift(word, 31) * _SECOND_BACK & MASK
    word = _unshift(word, 27) * _FIRST_BACK & MASK
    return _unshift(word, 30)


def _unshift(word: int, bits: int) -> int:
    answer = word
    for _ in range(64 // bits):
        answer = word ^ (answer >> bits)
    return answer


def word_at(key: int, index: int) -> int:
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
    """Return the only position, of 2**64, of this word in the pattern."""
    return ((unmix(word) - key) * _STRIDE_BACK) & MASK


def poison_for(keys: tuple[int, ...], words: int) -> int:
    """Return a word that is not zero and not among the first ``words`` of these patterns."""
    poison = POISON
    while any(index_of(key, poison) < words for key in keys):
        poison = mix(poison)
    return poison


def signed(word: int) -> int:
    """Return the word as a two's complement 64-bit integer, as array libraries use it."""
    return word - (1 << 64) if word >> 63 else word


def pattern_array(index: Any, key: int) -> Any:
    """Return the same words for an array of signed 64-bit positions, with the array library's wrapping arithmetic."""

    def shift(array: Any, bits: int) -> Any:
        # A shift of a signed array extends the sign, which the mask removes.
        return (array >> bits) & ((1 << (64 - bits)) - 1)

    word = index * signed(STRIDE) + signed(key)
    word = (word ^ shift(word, 30)) * signed(FIRST)
    word = (word ^ shift(word, 27)) * signed(SECOND)
    return word ^ shift(word, 31)
