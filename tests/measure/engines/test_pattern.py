"""A word says where it belongs, and can be asked."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.measure.engines.driver.gpu import cpus_of, on_node
from gpucheck.measure.engines.pattern import (
    POISON,
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
from gpucheck.measure.running.child import Suspects, classify
from gpucheck.measure.values import Wrong

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


WORDS = 4096
MINE, EARLIER, OTHER = Origin(1, 0, 1, 1).key, Origin(1, 0, 1, 0).key, Origin(1, 2, 3, 1).key
SUSPECTS = Suspects(MINE, POISON, WORDS, (EARLIER,), (("the copy from device 2 to device 3", OTHER),))


def sample(word, indices=range(0, WORDS, 64)):
    return [Wrong(index=i, got=word(i)) for i in indices]


@pytest.mark.parametrize(
    ("word", "kind", "detail"),
    [
        (lambda i: POISON, "untouched", "its data from before the copy"),
        (lambda i: 0, "zeros", "zeros arrived"),
        (lambda i: word_at(EARLIER, i), "stale", "earlier round"),
        (lambda i: word_at(OTHER, i), "other-pair", "from device 2 to device 3"),
        (lambda i: word_at(MINE, (i + 512) % WORDS), "shifted", "-4096 bytes from its position"),
        (lambda i: word_at(MINE, i) ^ (1 << 40), "bit-flip", "single bits"),
        (lambda i: 0x1234567 + i, "mixed", "no buffer of this run"),
    ],
)
def test_each_kind_of_damage_is_told_from_the_others(word, kind, detail):
    found, words = classify(sample(word), SUSPECTS)

    assert found == kind
    assert detail in words


def test_damage_of_two_kinds_is_called_mixed_and_counted():
    half = sample(lambda i: 0, range(32)) + sample(lambda i: POISON, range(32, 64))

    assert classify(half, SUSPECTS) == ("mixed", "32 of 64 sampled words zeros, 32 of 64 sampled words untouched")


def test_nothing_wrong_is_no_damage():
    with pytest.raises(ValueError, match="no wrong word"):
        classify([], SUSPECTS)


@pytest.fixture
def nodes(tmp_path):
    def tell(text):
        (tmp_path / "node1").mkdir()
        (tmp_path / "node1/cpulist").write_text(text)
        return tmp_path

    return tell


@pytest.mark.parametrize(("text", "cpus"), [("0-3\n", {0, 1, 2, 3}), ("1,3-4,9\n", {1, 3, 4, 9}), ("\n", set())])
def test_a_list_of_cpus_is_read_as_the_kernel_writes_it(nodes, text, cpus):
    assert cpus_of(1, nodes(text)) == cpus


def test_a_node_is_where_this_runs_for_a_while(nodes):
    before = os.sched_getaffinity(0)
    one = min(before)

    with on_node(1, nodes(f"{one}\n")):
        assert os.sched_getaffinity(0) == {one}
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize("node", [None, 1, 7])
def test_a_node_that_is_unknown_or_not_ours_changes_nothing(nodes, node):
    before = os.sched_getaffinity(0)

    with on_node(node, nodes("4000-4003\n")):
        assert os.sched_getaffinity(0) == before
