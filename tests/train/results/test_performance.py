"""Figures from booked seconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.train.results.merge import FEWEST_STEPS, shares, straggler

STEPS = 40


@given(st.lists(st.floats(1e-4, 1e-1), min_size=STEPS, max_size=STEPS), st.integers(0, 3))
def test_other_work_that_makes_some_steps_longer_is_no_straggler(noise, busy):
    """Half of one rank's steps may be slow for whatever reason."""
    steady = [0.002] * STEPS
    disturbed = [0.002 + (extra if n % 4 < busy else 0) for n, extra in enumerate(noise)]

    ratio, _ = straggler([steady, disturbed])

    assert ratio == pytest.approx(1.0)


@given(st.floats(1.6, 10), st.integers(0, 3))
def test_a_rank_that_is_slower_in_every_step_is(factor, slow):
    ratio, rank = straggler([[0.002 * (factor if n == slow else 1)] * STEPS for n in range(4)])

    assert rank == slow
    assert ratio == pytest.approx(factor)


def test_nothing_is_said_of_one_rank_or_of_few_steps():
    assert straggler([[0.1] * STEPS]) == (None, None)
    assert straggler([[0.1] * FEWEST_STEPS, [0.9] * FEWEST_STEPS]) == (None, None)
    assert straggler([[], []]) == (None, None)


def test_shares_add_up_over_all_ranks_and_leave_out_what_nobody_booked():
    booked = [{"load": 1.0, "forward": 2.0, "import": 9.0}, {"load": 1.0, "forward": 4.0}]
    assert shares(booked) == {"data": 0.25, "forward": 0.75}
    assert shares([{}]) == {}
