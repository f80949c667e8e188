"""Bus bandwidth factors and buffer sizes of the collectives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.measure.collectives.values import bus_factor, elements


@pytest.mark.parametrize(
    ("name", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 8, 1.75),
        ("all_gather", 2, 0.5),
        ("reduce_scatter", 8, 0.875),
        ("all_to_all", 4, 0.75),
        ("broadcast", 8, 1.0),
        ("send_recv", 8, 1.0),
    ],
)
def test_bus_bandwidth_is_that_of_nccl_tests(name, ranks, factor):
    assert bus_factor(name, ranks) == factor


def test_an_unknown_collective_is_named():
    with pytest.raises(LookupError, match="all_redcue"):
        bus_factor("all_redcue", 2)


@given(size=st.integers(1, 1 << 40), ranks=st.integers(2, 1024))
def test_buffers_divide_among_the_ranks(size, ranks):
    count = elements(size, ranks)

    assert count >= ranks
    assert count % ranks == 0
    assert count * 4 <= max(size, ranks * 4)
