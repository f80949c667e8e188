"""A burn-in finds faults when they come up, ends at its limits, and plans its time."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucheck.checks.compute.results import checked, miss_probability
from gpucheck.compute.engines.cublas import CublasEngine
from gpucheck.compute.engines.simulated import SimulatedBench
from gpucheck.compute.measure import (
    LEAST_S,
    MOST_S,
    OWN,
    SHUTDOWN,
    SLOWDOWN,
    Progress,
    Reached,
    _ending,
    duration,
    limits,
    reached,
    rounds_of,
    span,
    words,
)
from gpucheck.compute.running.run import Collected, ComputeRun
from gpucheck.compute.values import LONGEST_S, Answer, ComputeStep, Failure, Opened, steps
from gpucheck.measure.planning.selection import Unmeasurable
from gpucheck.model import Verdict
from gpucheck.model.compute import TYPES, Sample
from gpucheck.model.device import Device
from tests.compute.machines import burnt, computed, loud, simulated
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
def two_days():
    """Two days on a healthy machine with two GPUs."""
    return burnt(simulated("p100-pcie-x2"), DAYS)


@pytest.mark.parametrize(
    "profile", sampled(["hgx-h100-x8", "p100-pcie-x2", "a100-sxm-x4"], lambda _, profile: profile == "p100-pcie-x2")
)
def test_two_days_on_a_healthy_machine_find_nothing(profile, two_days):
    ran = two_days if profile == "p100-pcie-x2" else burnt(simulated(profile), DAYS)

    assert (ran.ended, ran.at.done, found(ran)) == ("complete", 288, set())
    assert ran.run.seconds == pytest.approx(DAYS)
    assert all(len(one.traces) <= one.most for one in ran.run.collected)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault):
    gpus = simulated("a100-sxm-x4", fault)
    ran = burnt(gpus, 4 * 3600.0)

    assert found(ran) == {(FAULTS[fault][0], f"gpu:{gpus[1].bus_id}", FAULTS[fault][1])}


def test_corruption_that_a_standard_run_misses_is_found_in_two_days(two_days):
    rate = 8 / sum(one.values for one in two_days.devices[1].repeats.values())
    standard, _ = computed("p100-pcie-x2")
    ran = burnt(simulated("p100-pcie-x2", f"sdc:gpu=1,rate={rate}"), DAYS)

    assert miss_probability(checked(standard.devices)[0], rate) > 0.99
    assert found(ran) == {("compute-results", f"gpu:{ran.devices[1].bus_id}", "silent-corruption")}


def test_a_limit_of_temperature_ends_the_run_and_is_named():
    ran = burnt(simulated("p100-pcie-x2"), SHORT, limit=50.0)

    assert ran.ended == "limit"
    assert (ran.at.stopped.code, ran.at.stopped.values["limit_c"]) == (SHUTDOWN, 50)
    assert ran.run.seconds < 600


def test_a_limit_of_the_memory_s_temperature_ends_the_run_and_is_named():
    gpus = simulated("a100-sxm-x4")
    ran = burnt(gpus, SHORT, limit=90.0, memory=60.0)

    assert ran.ended == "limit"
    why = _ending(ran.run, ran.at, SHORT, ()).why
    assert why.startswith("Stopped at a limit: the memory of the GPU reached 65 C, limit 60 C (at which")
    assert {gpu.memory_limit_c for gpu in gpus} == {95.0}


def hopper(index, **health):
    return replace(h100(index), health=replace(h100(index).health, **health))


NO_MEMORY = (Opened(types=()), Opened(types=()))


def test_a_gpu_without_a_shutdown_temperature_has_its_t_limit():
    """nvidia-smi of H100, H200 and L40S prints margins (T.Limit) in place of temperatures."""
    gpus = (
        hopper(0, temperature_shutdown_c=None, temperature_margin_c=45),
        hopper(1, temperature_shutdown_c=92, temperature_margin_c=45),
    )
    found = limits(gpus, NO_MEMORY, None)

    assert found == {0: {SLOWDOWN: 0}, 1: {SHUTDOWN: 90}}
    assert words(found)[1] == "margin of a GPU to its slowdown: 0 C (source: NVML's T.Limit of that GPU)"
    assert reached(0, found[0], [Sample(at=1.0, temperature_c=86, margin_c=1)], {}) is None
    assert reached(1, found[1], [Sample(at=1.0, temperature_c=86, margin_c=0)], {}) is None
    stopped = reached(0, found[0], [Sample(at=1.0, margin_c=3), Sample(at=2.0, margin_c=-1)], {})
    assert stopped == (0, SLOWDOWN, {"margin_c": -1})


def test_no_limit_of_temperature_is_no_burn_in():
    gpus = (hopper(0), hopper(1, temperature_shutdown_c=None, temperature_margin_c=None))

    with pytest.raises(Unmeasurable) as refused:
        limits(gpus, NO_MEMORY, None)
    assert (refused.value.finding.code, refused.value.finding.values) == (
        "compute.no-temperature-limit",
        {"gpus": (1,)},
    )
    assert limits(gpus, NO_MEMORY, 80.0) == {0: {OWN: 80}, 1: {OWN: 80}}


HOT = {"reached_c": 91, "limit_c": 90, "below_c": 2}


@pytest.mark.parametrize(
    ("ended", "code", "values", "verdict"),
    [
        ("interrupted", "compute.burn-in-interrupted", {}, Verdict.UNKNOWN),
        ("no-device", "compute.burn-in-no-gpu", {}, Verdict.UNKNOWN),
        ("limit", "compute.burn-in-shutdown-limit", HOT, Verdict.FAIL),
        ("limit", "compute.burn-in-own-limit", HOT, Verdict.WARN),
        ("limit", "compute.burn-in-errors", {"errors": ("2 pcie_fatal",)}, Verdict.WARN),
    ],
)
def test_a_run_that_ended_early_has_a_code(ended, code, values, verdict):
    opened = Failure(kind="crashed", detail="") if ended == "no-device" else Opened(types=())
    run = ComputeRun(SimpleNamespace(open=lambda: [opened]), [Device(index=0, name="x")], None)
    at = Progress(stopped=Reached(0, code, values) if ended == "limit" else None)
    finding = _ending(run, at, 600, ())

    assert at.ended(run, 600) == ended
    assert (finding.code, finding.values, finding.verdict) == (code, values, verdict)


def test_errors_end_the_run_and_name_the_counter(monkeypatch):
    def counting(self, gpu, step):
        return replace(matrix(self, gpu, step), errors={"ecc_uncorrected": 7})

    matrix, opened = SimulatedBench._matrix, SimulatedBench.open
    monkeypatch.setattr(SimulatedBench, "_matrix", counting)
    monkeypatch.setattr(
        SimulatedBench, "open", lambda self: [replace(one, errors={"ecc_uncorrected": 5}) for one in opened(self)]
    )
    ran = burnt(simulated("p100-pcie-x2"), SHORT)

    assert ran.ended == "limit"
    assert ran.at.stopped == (0, "compute.burn-in-errors", {"errors": ("2 ecc_uncorrected",)})
    assert ran.devices[0].errors == {"ecc_uncorrected": 2}
    assert "ecc-uncorrected" in {cause for _, _, cause in found(ran)}


def test_no_round_has_what_the_engine_does_not_have(monkeypatch):
    opened = SimulatedBench.open
    monkeypatch.setattr(
        SimulatedBench, "open", lambda self: [replace(one, without=CublasEngine.without) for one in opened(self)]
    )
    (first, *_) = burnt(simulated("a100-sxm-x4"), SHORT).devices

    assert {what.partition("-")[0] for what in first.repeats} == {"matrix"}
    assert (first.memory.read_gb_s, first.memory.copy_gb_s is not None) == (None, True)


def test_a_run_goes_on_without_a_gpu_that_failed(monkeypatch):
    def failing(self, step, places):
        answers = dict(run(self, step, places))
        if 1 in answers and step.kind == "matrix":
            answers[1] = Failure(kind="cuda-error", detail="Xid")
        return answers

    run = SimulatedBench.run
    monkeypatch.setattr(SimulatedBench, "run", failing)
    ran = burnt(simulated("a100-sxm-x4"), SHORT)

    assert ran.ended == "complete"
    assert [one.failed for one in ran.devices] == [None, "cuda-error", None, None]


SECONDS = st.integers(LEAST_S, MOST_S)
ABLE = st.lists(st.sampled_from(TYPES), min_size=1, max_size=6, unique=True)
WITHOUT = st.sampled_from([(), CublasEngine.without])


@given(SECONDS, ABLE, WITHOUT)
def test_the_steps_of_all_rounds_take_the_planned_time(seconds, types, without):
    rounds = rounds_of(seconds)
    planned = tuple(steps(types, without=without, round_s=seconds / rounds))

    assert rounds >= 4
    assert sum(step.seconds for step in planned) * rounds == pytest.approx(seconds, rel=1e-6)
    assert all(0 < step.seconds <= LONGEST_S for step in planned)
    assert 120 <= seconds / rounds <= 660


@given(SECONDS, ABLE, WITHOUT)
def test_a_round_rests_first_and_computes_cold_hot_and_with_power_steps(seconds, types, without):
    planned = tuple(steps(types, without=without, round_s=seconds / rounds_of(seconds)))

    assert planned[0].kind == "rest"
    assert {step.phase for step in planned if step.kind == "results"} == {"cold", "hot", "steps"}
    assert {step.what for step in planned if step.kind == "matrix"} == set(types)


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


def collected(*answers, most=0):
    one = Collected(Device(index=0, name="x"), Opened(types=("bf16",), errors={"ecc": 1}), most)
    for step, answer in answers:
        one.add(step, answer, 0.0)
    return one


@given(st.integers(1, 3000), st.integers(4, 100))
def test_some_readings_are_kept_evenly_over_the_run_and_the_hottest(readings, most):
    samples = tuple(Sample(at=float(at), temperature_c=60 + at % 7) for at in range(readings))
    step = ComputeStep(kind="memory", what="read", seconds=1.0)
    one = collected((step, Answer(rates=(1.0,) * 7, samples=samples)), most=most)

    assert len(one.traces) <= most
    assert len(one.traces) >= min(readings, most // 2)
    assert {b.at - a.at for a, b in zip(one.traces, one.traces[1:], strict=False)} <= {float(one.every)}
    assert one.hottest == max(sample.temperature_c for sample in samples)


def test_rounds_together_are_the_medians_of_rates_and_the_sums_of_repeats():
    rate = ComputeStep(kind="matrix", what="bf16", seconds=1.0)
    same = ComputeStep(kind="results", what="matrix-bf16", seconds=1.0)
    answers = [(rate, Answer(rates=(value * 1e12,) * 7, errors={"ecc": 3})) for value in (700.0, 100.0, 710.0)]
    answers += [(same, Answer(digests=(digest,) * 20, values=5)) for digest in "aab"]
    whole = collected(*answers).result()

    assert (whole.gemm["bf16"].tflops, whole.gemm["bf16"].samples) == (700.0, 21)
    assert whole.digests["matrix-bf16"] == "a"
    repeats = whole.repeats["matrix-bf16"]
    assert (repeats.repeats, repeats.differing, repeats.values) == (60, 20, 300)
