"""What verify keeps of a computing run, and when it has none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.checks.software.stack import PLAN
from gpucheck.compute import measure
from gpucheck.compute.values import Failure
from gpucheck.model import Verdict
from gpucheck.model.compute import Sample
from gpucheck.run.steps.compute import MOST_READINGS, shortened
from tests.run.test_proof import host_with, missing, plan, verified

REASONS = ("sw-power-cap", "hw-thermal")
number = st.none() | st.floats(0, 2000)
samples = st.lists(
    st.builds(
        Sample,
        at=st.floats(0, 100),
        sm_clock_mhz=number,
        temperature_c=number,
        margin_c=number,
        reasons=st.none() | st.sets(st.sampled_from(REASONS)).map(lambda found: tuple(sorted(found))),
    ),
    max_size=200,
).map(lambda made: sorted(made, key=lambda sample: sample.at))


def known(readings, name):
    return [value for reading in readings if (value := getattr(reading, name)) is not None]


@given(samples)
def test_shortened_traces_keep_the_extremes_the_span_and_what_was_not_reported(whole):
    short = shortened(whole)

    assert len(short) <= MOST_READINGS
    assert [reading.at for reading in short[-1:]] == [reading.at for reading in whole[-1:]]
    for name, extreme in (("temperature_c", max), ("margin_c", min)):
        assert bool(known(short, name)) == bool(known(whole, name))
        if known(whole, name):
            assert abs(extreme(known(short, name)) - extreme(known(whole, name))) <= 0.05
    clocks = known(whole, "sm_clock_mhz")
    assert all(min(clocks) - 0.05 <= clock <= max(clocks) + 0.05 for clock in known(short, "sm_clock_mhz"))
    assert {*sum(known(short, "reasons"), ())} <= {*sum(known(whole, "reasons"), ())}


def test_a_reason_that_holds_the_clock_half_of_the_time_still_does_and_a_short_one_is_left_out():
    readings = [Sample(at=at / 10, reasons=("hw-thermal",) if at >= 400 else ()) for at in range(800)]
    part = [bool(reading.reasons) for reading in shortened(readings)]
    assert sum(part) / len(part) == 0.5

    blips = [Sample(at=at / 10, reasons=("hw-thermal",) if at % 20 == 0 else ()) for at in range(800)]
    assert not any(reading.reasons for reading in shortened(blips))


class Bench:
    """Devices that open so."""

    def __init__(self, devices, engine):
        self.devices, self.engine = devices, engine

    def open(self):
        return [Failure(kind="missing-package", detail=self.engine) for _ in self.devices]

    def close(self):
        pass


@pytest.mark.parametrize(
    ("files", "verdict", "code", "not_proven"),
    [
        (
            {PLAN: plan()},
            Verdict.SKIP,
            "compute.engine-not-planned",
            "names no torch, and cuBLAS",
        ),
        ({PLAN: plan(torch="2.9.1")}, Verdict.UNKNOWN, "compute.engine-missing", "neither torch nor cuBLAS"),
        ({}, Verdict.UNKNOWN, "compute.engine-missing", "neither torch nor cuBLAS"),
    ],
)
def test_computing_without_torch_and_cublas_is_a_skip_if_the_plan_names_no_torch(
    monkeypatch, files, verdict, code, not_proven
):
    monkeypatch.setattr(measure, "find_spec", missing("torch"))
    monkeypatch.setattr(measure, "Workers", Bench)
    report = verified(host_with(files=files), "compute")

    assert [(f.check, f.verdict, f.code) for f in report.findings] == [("compute", verdict, code)]
    assert not_proven in report.not_proven[0]
