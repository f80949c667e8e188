"""A word says where it belongs, and can be asked."""

from hypothesis import given
from hypothesis import strategies as st

from gpucheck.measure.engines.pattern import (
    Origin,
    index_of,
    mix,
    pattern_array,
    poison_for,
    signed,
    unmix,
    word_at,
    words_at,
)

words = st.integers(0, 2**64 - 1)


@given(words)
def test_mixing_can_be_undone(word):
    assert unmix(mix(word)) == word
    assert mix(unmix(word)) == word


@given(words, st.integers(0, 2**40))
def test_a_word_names_its_position(key, index):
    assert index_of(key, word_at(key, index)) == index


@given(words, st.integers(0, 2**40))
def test_many_words_are_those_one_by_one(key, first):
    assert words_at(key, first, 5) == [word_at(key, first + place) for place in range(5)]


def test_no_position_of_a_large_buffer_repeats():
    key = Origin(1, 0, 1, 0).key
    assert len({word_at(key, index) for index in range(200_000)}) == 200_000


def test_patterns_of_pairs_rounds_and_regions_share_no_word():
    """A stale round or another pair's data must never look right."""
    keys = [
        Origin(7, src, dst, round_, region).key
        for src in range(3)
        for dst in range(3)
        for round_ in range(3)
        for region in (0, 1)
    ]
    for key in keys:
        for other in keys:
            if key != other:
                assert index_of(other, word_at(key, 0)) > 1 << 28


@given(words, st.integers(0, 1000))
def test_poison_is_no_word_of_the_pattern(key, index):
    """Even for a pattern that would hold the usual poison."""
    poison = poison_for((key,), 2000)
    assert index_of(key, poison) >= 2000
    assert poison != 0


@given(words)
def test_signed_words_keep_their_bits(word):
    assert signed(word) & (2**64 - 1) == word


def test_arrays_hold_the_same_words():
    numpy = __import__("numpy")
    key = Origin(3, 1, 0, 2).key
    made = pattern_array(numpy.arange(1000), key)

    assert [int(word) & (2**64 - 1) for word in made] == [word_at(key, index) for index in range(1000)]
