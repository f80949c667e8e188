"""Numbers are compared with those of the same kind of path and rate, whatever the words about them."""

from gpucheck.checks._healthy import Level, verdict_of
from gpucheck.model import Verdict
from gpucheck.topology.expected import peer_copy

USUAL, SAME_RATE = peer_copy("PIX", 3, 16), peer_copy("PIX", 4, 8)


def test_the_middle_of_one_kind_counts():
    low = USUAL.gb_s / 2
    well = [Level(USUAL.gb_s, USUAL)] * 2

    assert verdict_of([*well, Level(low, USUAL._replace(basis="other words"))]) is Verdict.PASS
    assert verdict_of([*well, Level(low, SAME_RATE._replace(basis=USUAL.basis))]) is Verdict.FAIL
