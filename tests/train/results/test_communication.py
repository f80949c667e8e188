"""Sums tell whether an average is the average, and what went wrong: pure, for any number of ranks."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.model.smoke import Miscommunication
from gpucheck.train.progress import Sums
from gpucheck.train.results.merge import FEWEST_STEPS, first_miscommunication, shares, straggler

values = st.lists(st.floats(-100, 100).filter(lambda v: abs(v) > 0.1), min_size=4, max_size=4)


def healthy(sent_by_rank):
    """One step in which every rank receives the average of all."""
    average = [math.fsum(column) / len(sent_by_rank) for column in zip(*sent_by_rank, strict=True)]
    return [Sums(sent=tuple(s), received=tuple(average), norm=math.hypot(*s)) for s in sent_by_rank]


def by_rank(*steps):
    return [list(rank) for rank in zip(*steps, strict=True)]


def found_in(sums) -> Miscommunication:
    found = first_miscommunication(sums)
    assert found is not None
    return found


ranks = st.integers(2, 5).flatmap(lambda n: st.lists(values, min_size=n, max_size=n))


@given(ranks, st.floats(-1e-6, 1e-6))
def test_an_average_with_rounding_is_right(sent, rounding):
    step = [
        Sums(sent=s.sent, received=tuple(v * (1 + rounding) for v in s.received), norm=s.norm) for s in healthy(sent)
    ]
    assert first_miscommunication(by_rank(step)) is None


@given(ranks, st.data())
def test_a_lost_contribution_is_named_with_its_rank(sent, data):
    lost = data.draw(st.integers(0, len(sent) - 1))
    partial = [sum(c for n, c in enumerate(column) if n != lost) / len(sent) for column in zip(*sent, strict=True)]
    step = [Sums(sent=tuple(s), received=tuple(partial), norm=math.hypot(*s)) for s in sent]

    found = found_in(by_rank(healthy(sent), step))

    assert (found.step, found.kind) == (2, "dropped")
    # Two ranks that sent the very same cannot be told apart.
    assert sent[found.rank] == pytest.approx(sent[lost], rel=1e-3)


def test_a_contribution_of_the_step_before_is_stale():
    first, second = [[1.0, 5.0], [3.0, -2.0]], [[0.5, 2.0], [7.0, 1.0]]
    average = [(0.5 + 3.0) / 2, (2.0 - 2.0) / 2]
    step = [Sums(sent=tuple(s), received=tuple(average), norm=math.hypot(*s)) for s in second]

    found = found_in(by_rank(healthy(first), step))

    assert (found.step, found.kind, found.rank) == (2, "stale", 1)


def test_the_whole_answer_of_the_step_before_is_stale_where_it_was_received():
    first, second = healthy([[1.0, 5.0], [3.0, -2.0]]), healthy([[0.5, 2.0], [7.0, 1.0]])
    second[1] = Sums(sent=second[1].sent, received=first[1].received, norm=second[1].norm)

    assert found_in(by_rank(first, second)).kind == "stale"


@pytest.mark.parametrize("received", [(9.0, 9.0), (None, 1.0)])
def test_what_nothing_explains_is_wrong_where_it_arrived(received):
    step = healthy([[1.0, 5.0], [3.0, -2.0]])
    step[1] = Sums(sent=step[1].sent, received=received, norm=step[1].norm)

    found = found_in(by_rank(step))

    assert (found.step, found.kind, found.rank) == (1, "wrong", 1)


def test_gradients_that_are_no_numbers_are_not_the_communications_fault():
    step = [Sums(sent=(None, 1.0), received=(None, 1.0), norm=None)] * 2
    assert first_miscommunication(by_rank(step)) is None


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
