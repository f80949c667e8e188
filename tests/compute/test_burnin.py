"""A burn-in finds faults and keeps them, wherever it is cut; its file survives what happens to files."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucheck.compute.burnin import measure as run_
from gpucheck.compute.burnin.plan import (
    LEAST_S,
    LONGEST_S,
    MOST_S,
    READINGS,
    Reached,
    StateError,
    duration,
    ending,
    limits,
    of_gpu,
    plan,
    read,
    round_steps,
    span,
    together,
    write,
)
from gpucheck.compute.evaluation import checked
from gpucheck.compute.evaluation.results import miss_probability
from gpucheck.compute.values import TYPES, Failure, operations
from gpucheck.measure.planning.selection import Unmeasurable
from gpucheck.model import Verdict
from gpucheck.model.compute import BurnIn, Sample
from tests.compute.burnin import Cut, begun, session
from tests.compute.machines import computed, device, loud, simulated
from tests.machines import h100
from tests.shared import sampled

SHORT, DAYS = 3600.0, 48 * 3600.0
FAULTS = {
    "hot:gpu=1": ("compute-clocks", "throttled"),
    "hot:gpu=1,by=fan": ("compute-clocks", "throttled"),
    "sdc:gpu=1,rate=1e-12": ("compute-results", "silent-corruption"),
    "gemm-slow:gpu=1": ("compute-matrix", "slow-compute"),
    "memory-slow:gpu=1": ("compute-memory", "slow-memory"),
}


def found(ran) -> set[tuple[str, str, str | None]]:
    return {(check, subject, cause) for check, subject, cause, _ in loud(ran.findings)}


@pytest.fixture(scope="module")
def two_days(tmp_path_factory):
    """Two days on a healthy machine with two GPUs, and the file."""
    path = tmp_path_factory.mktemp("burnin") / "state"
    return session(simulated("p100-pcie-x2"), path, DAYS), path


@pytest.mark.parametrize(
    "profile", sampled(["hgx-h100-x8", "p100-pcie-x2", "a100-sxm-x4"], lambda _, profile: profile == "p100-pcie-x2")
)
def test_two_days_on_a_healthy_machine_find_nothing(profile, two_days, tmp_path):
    path = tmp_path / "state"
    ran, path = two_days if profile == "p100-pcie-x2" else (session(simulated(profile), path, DAYS), path)

    assert (ran.state.ended, ran.state.done, found(ran), ran.notes) == ("complete", 288, set(), [])
    assert ran.state.seconds == pytest.approx(DAYS)
    assert path.stat().st_size < 2 << 20


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_as_it_happens_and_at_the_end(fault, tmp_path):
    gpus = simulated("a100-sxm-x4", fault)
    ran = session(gpus, tmp_path / "state", 4 * 3600.0)

    assert found(ran) == {(FAULTS[fault][0], f"gpu:{gpus[1].bus_id}", FAULTS[fault][1])}
    assert ran.state.noticed[0].cause == FAULTS[fault][1]
    assert ran.state.noticed[0].at < 3600
    assert read(tmp_path / "state").noticed == ran.state.noticed


def test_corruption_that_a_standard_run_misses_is_found_in_two_days(two_days, tmp_path):
    healthy, _ = two_days
    rate = 8 / sum(one.values for one in healthy.devices[1].repeats.values())
    standard, _ = computed("p100-pcie-x2")
    ran = session(simulated("p100-pcie-x2", f"sdc:gpu=1,rate={rate}"), tmp_path / "state", DAYS)

    assert miss_probability(checked(standard.devices)[0], rate) > 0.99
    assert found(ran) == {("compute-results", f"gpu:{ran.devices[1].bus_id}", "silent-corruption")}


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(0, 400), max_size=4), st.sampled_from([None, *FAULTS]))
def test_a_run_that_is_cut_anywhere_has_the_verdict_of_a_whole_one(cuts, fault):
    gpus = simulated("p100-pcie-x2", *([fault] if fault else []))
    with tempfile.TemporaryDirectory() as folder:
        whole = session(gpus, Path(folder) / "whole", SHORT)
        for cut in cuts:
            if session(gpus, Path(folder) / "cut", SHORT, cut=cut).state.ended is not None:
                break
        state = read(Path(folder) / "cut")
        parts = (
            session(gpus, Path(folder) / "cut", SHORT)
            if state is None or state.ended is None
            else session(gpus, Path(folder) / "again", SHORT)
        )

    assert parts.state.ended == whole.state.ended == "complete"
    assert found(parts) == found(whole)
    assert {d.digests.get("matrix-fp32") for d in parts.devices[:1]} == {whole.devices[0].digests["matrix-fp32"]}


def test_a_loss_of_power_costs_one_round_at_most(tmp_path):
    """Nothing of a round is written before its end, unless a signal gives time for it."""
    path, gpus = tmp_path / "state", simulated("p100-pcie-x2")
    per_round = 1 + 3 + 1 + 2 * len(operations(["fp32"])) + 1
    session(gpus, path, SHORT, cut=3 * per_round + 5)
    kept = read(path)

    assert 2 <= kept.done <= 3
    assert kept.rounds[0].gpus[0].repeats


def test_a_limit_of_temperature_ends_the_run_and_is_named(tmp_path):
    ran = session(simulated("p100-pcie-x2"), tmp_path / "state", SHORT, limit=50.0)

    assert ran.state.ended == "limit"
    assert "limit 50 C" in ran.state.reason
    assert ran.state.seconds < 600


def test_a_limit_of_the_memory_s_temperature_ends_the_run_and_is_named(tmp_path):
    gpus = simulated("a100-sxm-x4")
    ran = session(gpus, tmp_path / "state", SHORT, limit=90.0, memory=60.0)

    assert ran.state.ended == "limit"
    assert ran.state.reason == "temperature: GPU 0, memory, reached 65 C, limit 60 C (at which it slows down)"
    assert {gpu.memory_limit_c for gpu in gpus} == {95.0}


def hopper(index, **health):
    return replace(h100(index), health=replace(h100(index).health, **health))


def test_a_gpu_without_a_shutdown_temperature_has_its_t_limit():
    """nvidia-smi of H100, H200 and L40S prints margins (T.Limit) in place of temperatures."""
    gpus = (
        hopper(0, temperature_shutdown_c=None, temperature_margin_c=45),
        hopper(1, temperature_shutdown_c=92, temperature_margin_c=45),
    )
    found = limits(gpus, (), None)

    assert found.by_margin == {0}
    assert found.temperature_c == {0: None, 1: 90}
    assert "T.Limit" in " ".join(found.words())
    assert found.reached(0, [Sample(at=1.0, temperature_c=86, margin_c=1)], {}) is None
    assert found.reached(1, [Sample(at=1.0, temperature_c=86, margin_c=0)], {}) is None
    reached = found.reached(0, [Sample(at=1.0, margin_c=3), Sample(at=2.0, margin_c=-1)], {})
    assert reached.text == "temperature: GPU 0 reached its slowdown T.Limit (margin -1 C)"
    assert (reached.code, reached.values) == ("compute.burn-in-slowdown-limit", {"margin_c": -1})


def test_no_limit_of_temperature_is_no_burn_in():
    gpus = (hopper(0), hopper(1, temperature_shutdown_c=None, temperature_margin_c=None))

    with pytest.raises(Unmeasurable) as refused:
        limits(gpus, (), None)
    assert (refused.value.finding.code, refused.value.finding.values) == (
        "compute.no-temperature-limit",
        {"gpus": (1,)},
    )
    assert limits(gpus, (), 80.0).temperature_c == {0: 80.0, 1: 80.0}


HOT = {"reached_c": 91, "limit_c": 90, "below_c": 2}


@pytest.mark.parametrize(
    ("ended", "code", "values", "verdict"),
    [
        ("interrupted", "compute.burn-in-interrupted", {"state": "file"}, Verdict.UNKNOWN),
        ("no-device", "compute.burn-in-no-gpu", {}, Verdict.UNKNOWN),
        ("limit", "compute.burn-in-shutdown-limit", HOT, Verdict.FAIL),
        ("limit", "compute.burn-in-own-limit", HOT, Verdict.WARN),
        ("limit", "compute.burn-in-errors", {"errors": ("2 pcie_fatal",)}, Verdict.WARN),
    ],
)
def test_a_run_that_ended_early_has_a_code(ended, code, values, verdict):
    made = BurnIn(planned_seconds=60, seconds=6, planned_rounds=9, rounds=1, sessions=1, ended=ended, state="file")
    finding = ending(made, (device(0), Reached("", code, values)) if ended == "limit" else None)

    assert (finding.code, finding.values, finding.verdict) == (code, values, verdict)


def test_errors_end_the_run_and_name_the_counter(tmp_path, monkeypatch):
    def counting(self, gpu, step):
        return replace(matrix(self, gpu, step), errors={"ecc_uncorrected": 7})

    matrix, opened = Cut._matrix, Cut.open
    monkeypatch.setattr(Cut, "_matrix", counting)
    monkeypatch.setattr(Cut, "open", lambda self: [replace(one, errors={"ecc_uncorrected": 5}) for one in opened(self)])
    ran = session(simulated("p100-pcie-x2"), tmp_path / "state", SHORT)

    assert ran.state.ended == "limit"
    assert ran.state.reason == "errors: GPU 0 counted 2 ecc_uncorrected"
    assert ran.devices[0].errors == {"ecc_uncorrected": 2}
    assert "ecc-uncorrected" in {cause for _, _, cause in found(ran)}


def test_a_run_goes_on_without_a_gpu_that_failed(tmp_path, monkeypatch):
    def failing(self, step, places):
        answers = dict(run(self, step, places))
        if 1 in answers and step.kind == "matrix":
            answers[1] = Failure(kind="cuda-error", detail="Xid")
        return answers

    run = Cut.run
    monkeypatch.setattr(Cut, "run", failing)
    ran = session(simulated("a100-sxm-x4"), tmp_path / "state", SHORT)

    assert ran.state.ended == "complete"
    assert [one.failed for one in ran.devices] == [None, "cuda-error", None, None]


def test_a_full_disk_is_named_once_and_the_run_ends_with_its_results(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_, "write", full)
    ran = session(simulated("p100-pcie-x2"), tmp_path / "state", SHORT)

    assert ran.state.ended == "complete"
    assert [note for note in ran.notes if "No space left" in note] == ran.notes
    assert len(ran.notes) == 1


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("burnin") / "state"
    session(simulated("p100-pcie-x2"), path, SHORT, cut=30)
    return path.read_bytes()


@pytest.mark.parametrize("damaged", [b"", b"{}", b"[" * 100_000, b"\xff\xfe", b'{"schema":"gpucheck.burn-in/2"}', None])
def test_a_damaged_or_another_file_is_rejected_with_advice(damaged, good, tmp_path):
    (tmp_path / "state").write_bytes(good[: len(good) // 2] if damaged is None else damaged)

    for path in (tmp_path / "state", tmp_path):
        with pytest.raises(StateError, match="--state FILE"):
            read(path)


def test_the_file_is_private_and_complete_at_any_time(tmp_path):
    write(tmp_path / "state", begun(simulated("p100-pcie-x2"), SHORT))

    assert os.listdir(tmp_path) == ["state"]  # noqa: PTH208 - the names alone
    assert (tmp_path / "state").stat().st_mode & 0o007 == 0


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
