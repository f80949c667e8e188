import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.fleet.metrics import MAX_METRICS, host_metrics, middle, numbers, worse
from tests.fleet.reports import bad, report


def metrics(**measured):
    return host_metrics(report("a", measurements=measured))


def test_pairs_are_named_by_class_and_placed_by_bus_id():
    found = host_metrics(report("a", 380.0, pairs={"1-2": 300.0}))

    metric = found["p2p.unidirectional_gb_s[NV18]"]
    assert (metric.n, metric.host, metric.pair, metric.low) == (12, 380.0, 300.0, 350.0)
    assert metric.pair_at == "0000:01:00.0-0000:02:00.0"


def test_a_matrix_is_pairs_with_the_class_of_the_topology():
    matrix = [[None, 10.0, 11.0], [9.0, None, 12.0], [10.0, 8.0, None]]

    found = metrics(**{"p2p-latency": {"latency_us": matrix}})

    assert found["p2p.latency_us[NV18]"].n == 6
    assert found["p2p.latency_us[NV18]"].pair == 10.5


def test_collectives_are_named_by_what_they_did():
    found = metrics(collectives={"results": [{"op": "all_reduce", "ranks": 8, "bytes": 1024, "busbw_gb_s": 450.0}]})

    assert found["collectives.busbw_gb_s[all_reduce 8 1024]"].host == 450.0


def test_nested_and_listed_numbers_are_found_whatever_the_layout():
    found = metrics(
        host={"devices": {"h2d": [{"gpu": 0, "copy_gb_s": 50.0}, {"gpu": 1, "copy_gb_s": 40.0}]}, "total_seconds": 2}
    )

    assert found["host.devices.copy_gb_s"].gpu == 40.0
    assert found["host.devices.copy_gb_s"].gpu_at == "0000:01:00.0"
    assert found["host.total_seconds"].host == 2.0


def test_what_was_expected_is_not_measured():
    assert not metrics(
        p2p={"pairs": [{"a": 0, "b": 1, "expected_gb_s": 380.0, "deadline_seconds": 3, "expected": {"x_gb_s": 1}}]}
    )


def test_numbers_that_findings_saw_count():
    found = host_metrics(report("a", measurements={}, findings=(bad(seen=3, subject="gpu:0000:01:00.0"),)))
    with_unit = host_metrics(report("a", measurements={}, findings=(_with_unit(),)))

    assert not found
    assert with_unit["finding.nvlink.gb_s"].host == 3.0


def _with_unit():
    return msgspec.structs.replace(bad(seen=3), unit="GB/s")


@pytest.mark.parametrize(
    ("metric", "side"),
    [("p2p.unidirectional_gb_s[NV18]", "lower"), ("p2p.latency_us[SYS]", "higher"), ("x.t_c", "either")],
)
def test_the_unit_tells_which_side_is_sick(metric, side):
    assert worse(metric) == side


def test_one_bad_pair_does_not_move_the_middle():
    assert middle([10.0] * 7 + [1.0]) == 10.0


def test_a_hostile_report_cannot_make_a_million_metrics():
    assert len(metrics(x={f"m{i}_gb_s": float(i) for i in range(5000)})) == MAX_METRICS


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["a", "b", "gpu", "class", "x_gb_s", "y_us", "pairs", "z"]), inner, max_size=5
        )
    ),
    max_leaves=30,
)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=5), st.dictionaries(st.sampled_from(["pairs", "x_gb_s", "q"]), JSON, max_size=3), max_size=3
    )
)
def test_no_layout_breaks_the_walk(measured):
    """Whatever JSON a host sends: numbers or nothing."""
    host = report("a", measurements=measured)

    found = numbers(host)

    assert all(math.isfinite(v) for places in found.values() for values in places.values() for v in values)
    assert set(host_metrics(host)) <= set(found)
