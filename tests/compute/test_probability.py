"""The probability that a rare fault is missed: as the docstring states it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.compute.evaluation.results import RARE, miss_probability

RATES = st.floats(min_value=0, max_value=1)


@given(st.integers(min_value=0, max_value=10**12), RATES)
def test_it_is_a_probability(values, rate):
    assert 0 <= miss_probability(values, rate) <= 1


@given(st.integers(min_value=0, max_value=300), st.integers(min_value=0, max_value=300), st.floats(0, 0.999))
def test_two_runs_miss_what_each_of_them_misses(one, other, rate):
    both = miss_probability(one + other, rate)

    assert both == pytest.approx(miss_probability(one, rate) * miss_probability(other, rate), rel=1e-9)


@given(st.integers(min_value=0, max_value=200), RATES)
def test_it_is_the_power_that_the_docstring_states(values, rate):
    assert miss_probability(values, rate) == pytest.approx((1 - rate) ** values, rel=1e-6, abs=1e-12)


@given(st.integers(min_value=0, max_value=10**13), st.integers(min_value=0, max_value=10**13), RATES)
def test_more_values_never_miss_more(one, other, rate):
    fewer, more = sorted((one, other))

    assert miss_probability(more, rate) <= miss_probability(fewer, rate)


def test_three_and_seven_times_the_inverse_of_the_rate():
    assert miss_probability(int(3 / RARE)) == pytest.approx(0.05, abs=0.001)
    assert miss_probability(int(7 / RARE)) == pytest.approx(0.001, abs=0.0001)


@pytest.mark.parametrize(("values", "rate"), [(-1, 0.1), (1, -0.1), (1, 1.1), (1, math.nan)])
def test_what_is_no_rate_is_rejected(values, rate):
    with pytest.raises(ValueError, match="0 to 1"):
        miss_probability(values, rate)
