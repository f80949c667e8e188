"""Medians, spreads, and when there are enough samples."""

import pytest

from gpucheck.measure.values import MAX_REPEATS, adaptive, repeats_for, repeats_together, spread


def test_spread_is_median_and_median_deviation():
    found = spread([1.0, 2.0, 3.0, 4.0, 100.0])

    assert (found.median, found.mad, found.least, found.greatest, found.samples) == (3.0, 1.0, 1.0, 100.0, 5)


@pytest.mark.parametrize("samples", [[], [0.0, 1.0], [1.0, -1.0]])
def test_a_time_that_cannot_be_is_refused(samples):
    with pytest.raises(ValueError, match=r"no sample|events were not"):
        spread(samples)


def test_a_sample_lasts_long_enough_and_fits_the_queue():
    assert repeats_for(0.001) == 13
    assert repeats_for(0.1) == 1
    assert repeats_for(1e-9) == MAX_REPEATS


def test_flows_that_are_nearly_alike_copy_equally_often_and_so_end_together():
    """2.49 and 2.51 ms alone would be six copies and five: for a sixth of the time only one of them would run."""
    assert (repeats_for(0.00249), repeats_for(0.00251)) == (6, 5)
    assert repeats_together([0.00249, 0.00251]) == (6, 6)


def test_flows_that_differ_copy_as_often_as_each_needs():
    assert repeats_together([0.0025, 0.0125]) == (5, 1)


def test_steady_flows_stop_at_the_least():
    assert [len(column) for column in adaptive(lambda: (1.0, 2.0), 7, 21)] == [7, 7]


def test_one_unsteady_flow_keeps_all_sampling_to_the_most():
    """Its partner's samples stay comparable: they ran together."""
    times = iter([1.0, 1.5, 2.0] * 20)

    assert [len(column) for column in adaptive(lambda: (1.0, next(times)), 7, 21)] == [21, 21]
