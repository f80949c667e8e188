"""What is wrong with the data is read from the data."""

import pytest

from gpucheck.measure.engines.pattern import POISON, Origin, word_at
from gpucheck.measure.running.integrity import Suspects, classify
from gpucheck.measure.values import Wrong

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
