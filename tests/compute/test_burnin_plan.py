"""The plan of a burn-in: its time, its steps, its round; and sizes that stay bounded."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.compute.burnin.plan import LEAST_S, LONGEST_S, MOST_S, duration, plan, round_steps, span
from gpucheck.compute.burnin.totals import MOST_DIGESTS, MOST_ROUNDS, MOST_SAMPLES, Totals
from gpucheck.compute.plan import TYPES
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


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 400), st.integers(1, 60), st.integers(0, 2**32))
def test_what_is_kept_of_a_gpu_is_bounded_and_spread_over_the_run(rounds, readings, seed):
    totals = Totals()
    for number in range(rounds):
        at = [600.0 * number + 600 * n / readings + seed % 7 for n in range(readings)]
        made = device(
            digest=f"{seed + number:x}", traces=tuple(Sample(at=one, temperature_c=60 + one % 7) for one in at)
        )
        totals.add(made, number, {})

    assert len(totals.traces) <= MOST_SAMPLES
    assert len(msgspec.json.encode(totals)) < 128 << 10
    assert all(len(kept) <= MOST_ROUNDS for kept in totals.rates.values())
    assert all(len(found) <= MOST_DIGESTS + 1 for found in totals.digests.values())
    assert totals.device(device()).repeats["matrix-bf16"].repeats == 20 * rounds
    if rounds * readings > 4 * MOST_SAMPLES:
        halves = sum(sample.at < 300 * rounds for sample in totals.traces) / len(totals.traces)
        assert 0.3 < halves < 0.7


def test_the_hottest_reading_is_known_even_if_it_is_not_kept():
    totals = Totals()
    for number in range(200):
        hot = 99.0 if number == 77 else 60.0
        totals.add(
            device(traces=tuple(Sample(at=600.0 * number + n, temperature_c=hot) for n in range(60))), number, {}
        )

    assert totals.hottest == (99.0, 600.0 * 77)
