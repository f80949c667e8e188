"""The plan of a burn-in: its time, its steps, its round; and sizes that stay bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.compute.burnin.plan import (
    LEAST_S,
    LONGEST_S,
    MOST_S,
    READINGS,
    duration,
    of_gpu,
    plan,
    round_steps,
    span,
    together,
)
from gpucheck.compute.values import TYPES
from gpucheck.model.compute import Sample
from tests.compute.machines import device

SECONDS = st.integers(LEAST_S, MOST_S)
ABLE = st.lists(st.sampled_from(TYPES), min_size=1, max_size=6, unique=True)


@given(SECONDS, ABLE)
def test_the_steps_of_all_rounds_take_the_planned_time(seconds, types):
    made = plan(seconds)
    steps = tuple(round_steps(made, types))

    assert made.rounds >= 4
    assert sum(step.seconds for step in steps) * made.rounds == pytest.approx(seconds, rel=1e-6)
    assert all(0 < step.seconds <= LONGEST_S for step in steps)
    assert 120 <= made.round_s <= 660


@given(SECONDS, ABLE)
def test_a_round_rests_first_and_computes_cold_hot_and_with_power_steps(seconds, types):
    steps = tuple(round_steps(plan(seconds), types))

    assert steps[0].kind == "rest"
    assert {step.phase for step in steps if step.kind == "results"} == {"cold", "hot", "steps"}
    assert {step.what for step in steps if step.kind == "matrix"} == set(types)


@pytest.mark.parametrize(("text", "seconds"), [("10m", 600), ("1h30m", 5400), ("48h", 172800), ("2d", 172800)])
def test_a_duration_is_read(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "9m", "49h", "1.5h", "h", "-1h", "1h x", "99999999999999h", "\u0661h"])
def test_another_duration_is_rejected(text):
    with pytest.raises(ValueError, match=r"10m"):
        duration(text)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (59, "59 s"), (600, "10 min"), (172800, "48 h 0 min")])
def test_a_span_is_short(seconds, text):
    assert span(seconds) == text


@given(st.integers(1, 400), st.integers(1, 3000), st.integers(0, 2**32))
def test_some_readings_of_a_round_are_kept_from_all_its_parts_and_the_hottest(rounds, readings, number):
    at = [600 * n / readings for n in range(readings)]
    traces = tuple(Sample(at=one, temperature_c=60 + one % 7) for one in at)
    kept = of_gpu(device(traces=traces), number, rounds)

    assert len(kept.traces) == min(readings, max(1, READINGS // rounds))
    assert set(kept.traces) <= set(traces)
    assert kept.hottest == max(sample.temperature_c for sample in traces)
    if len(kept.traces) >= 100:
        assert 0.3 < sum(sample.at < 300 for sample in kept.traces) / len(kept.traces) < 0.7


def test_rounds_together_are_the_medians_of_rates_and_the_sums_of_counts():
    parts = [of_gpu(device(digest=digest, errors={"ecc": 1}), 0, 4) for digest in ("a", "a", "b")]
    whole = together(device(), parts)

    assert whole.digests["matrix-bf16"] == "a"
    assert (whole.repeats["matrix-bf16"].repeats, whole.repeats["matrix-bf16"].differing) == (60, 20)
    assert whole.errors == {"ecc": 3}
    assert whole.gemm["bf16"].tflops == device().gemm["bf16"].tflops
