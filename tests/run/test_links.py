"""Measuring and judging put together: what is judged, what is not, and what a busy GPU may not be blamed for."""

import json

import pytest
from msgspec.structs import replace

from gpucheck.measure.bandwidth import BandwidthOptions
from gpucheck.model import Finding, Verdict
from gpucheck.model.bandwidth import BandwidthReport, MeasuredDevice, MeasuredPair
from gpucheck.model.copies import Copied, Failure
from gpucheck.model.diagnosis.observations import CopyFailure, Measured, Observations, ObservedGpu
from gpucheck.model.measurements import copies_in_short, copies_of
from gpucheck.run import links
from gpucheck.run.step import numbers_of
from tests.machines import h100, whole_host

SLOW = Finding(
    check="p2p-bandwidth", verdict=Verdict.FAIL, subject="pair:0000:1b:00.0-0000:2b:00.0", why="slow", fix="look"
)
WRONG = replace(SLOW, check="p2p-integrity", why="wrong")
DEVICES = tuple(MeasuredDevice(index=3 + i, name="H100", bus_id=f"0000:{i + 1}b:00.0") for i in range(2))
COPIED = Copied(
    devices=DEVICES,
    of_gpus=True,
    opened=False,
    failures=(Failure(kind="missing-package", purpose="open", detail="cuda"),),
)
SEEN = Observations(
    gpus=(ObservedGpu(bus_id="0000:1b:00.0"), ObservedGpu(bus_id="0000:2b:00.0")),
    measured=Measured(failures=(CopyFailure(kind="stuck", step="one direction", pairs=((0, 1),)),)),
)


def measured(**values):
    report = BandwidthReport(
        host="node", simulated=False, engine="torch", kind="copies", depth="default", versions={}, started="",
        seconds=1.0, planned_s=1.0, device_s=1.0, rounds=1, devices=DEVICES, method=(), verdict=Verdict.UNKNOWN,
        findings=(), counts={}, observations=SEEN,
    )  # fmt: skip
    return replace(report, **values)


@pytest.fixture
def run(monkeypatch):
    """The report of a run that measured this, with what was judged."""

    def go(report):
        asked = []
        monkeypatch.setattr("gpucheck.measure.bandwidth.measure", lambda *given: given[-1](report, COPIED))
        monkeypatch.setattr(links, "diagnose", lambda seen: asked.append(seen) or (SLOW, WRONG))
        return links.bandwidth(whole_host(h100(0)), BandwidthOptions()), asked

    return go


def test_the_judge_gets_the_observations_and_its_findings_follow_the_gaps(run):
    report, asked = run(measured())

    assert asked == [SEEN]
    assert [finding.check for finding in report.findings] == ["p2p-copies", "p2p-bandwidth", "p2p-integrity"]
    assert (report.findings[1].gpu_index, report.findings[1].peer_index) == (3, 4)
    assert (report.verdict, report.counts["fail"], report.counts["skip"]) == (Verdict.FAIL, 2, 1)


def test_where_nothing_was_measured_nothing_is_judged(run):
    report, asked = run(measured(observations=replace(SEEN, measured=Measured())))

    assert asked == []
    assert (report.verdict, [one.check for one in report.findings]) == (Verdict.UNKNOWN, ["p2p-copies"])


@pytest.mark.parametrize(
    ("contended", "verdicts"), [(True, [Verdict.WARN, Verdict.FAIL]), (False, [Verdict.FAIL, Verdict.FAIL])]
)
def test_a_gpu_in_use_fails_on_no_number_but_on_wrong_data(run, contended, verdicts):
    report, _ = run(measured(contended=contended))

    assert [finding.verdict for finding in report.findings[1:]] == verdicts


def pair(src, dst, **values):
    expected = {"expected_gb_s": 382.5, "low_gb_s": 349.0, "high_gb_s": 450.0, "basis": "18 NVLinks"}
    return MeasuredPair(src=src, dst=dst, cls="NV18", ratio=0.9, **expected | values)


@pytest.mark.parametrize("other", [{}, {"expected_gb_s": 100.0, "basis": "4 NVLinks"}, {"basis": None}])
def test_what_is_expected_of_a_path_is_stored_once_and_read_back(other):
    report = measured(pairs=(pair(0, 1), pair(1, 0), pair(0, 2, **other)), rounds=3)
    numbers = copies_in_short(numbers_of(report))
    read = copies_of({"p2p": json.loads(json.dumps(numbers))})

    assert "expected_gb_s" not in numbers["pairs"][1]
    assert (read.pairs, read.devices, read.rounds) == (report.pairs, report.devices, 3)
    assert not {"findings", "local_gb_s", "tensor"} & set(numbers), "neither what the run has itself nor empty values"


def test_copies_of_another_form_are_none():
    assert copies_of({"p2p": {"expected": {"NV18": 1}, "pairs": [7], "devices": 3}}) is None
