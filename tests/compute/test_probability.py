"""The probability that a rare fault is missed: as the docstring states it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.compute.evaluation.results import RARE, miss_probability

RATES = st.floats(min_value=0, max_value=1)


@given(st.integers(min_value=0, max_value=200), RATES)
def test_it_is_the_power_that_the_docstring_states(values, rate):
    assert miss_probability(values, rate) == pytest.approx((1 - rate) ** values, rel=1e-6, abs=1e-12)


def test_three_and_seven_times_the_inverse_of_the_rate():
    assert miss_probability(int(3 / RARE)) == pytest.approx(0.05, abs=0.001)
    assert miss_probability(int(7 / RARE)) == pytest.approx(0.001, abs=0.0001)
