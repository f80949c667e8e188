"""Drivers from 470 to 615 on every board: what a driver does not offer yet, or no longer, is no fault of a machine."""

from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpucheck import simulator
from gpucheck.host import LiveSource, Place
from gpucheck.model import Finding, NvmlReading, Verdict
from tests.boundary import quick_findings
from tests.shared import sampled

DRIVERS = (
    *("470.256.02", "525.147.05", "535.309.01", "550.163.01", "560.35.05", "570.211.01", "575.64.05"),
    *("580.178.04", "590.48.01", "595.91.07", "610.57.04", "615.71.09"),
)
BOARDS = [name for name in simulator.profile_names() if name != "no-gpu"]
DIVIDED = "a100-mig-x8"  # a warning of each GPU is right there: it is divided
SAMPLE = {("470.256.02", "dgx1-v100"), ("590.48.01", "p100-pcie-x2"), ("615.71.09", "rtx4090-x2")}
CALLS = ("nvmlDeviceGetApplicationsClock", "nvmlDeviceGetDefaultApplicationsClock")
LOUD = (Verdict.WARN, Verdict.FAIL)
NO_LONGER = (Verdict.SKIP, "nvml.call-deprecated", "nvmlDeviceGetApplicationsClock")


def look(name: str, driver: str, folder: Path) -> tuple[NvmlReading, list[Finding]]:
    """The machine of a profile with another driver: what NVML answers, and what the checks say."""
    profile = simulator.load(name)
    simulator.make(replace(profile, driver=replace(profile.driver, version=driver)), folder, (), ())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUCHECK_SIMULATOR", str(folder))
        host = LiveSource(Place(isolated=True, deadline_s=30.0, machine=folder))
        findings = list(quick_findings(host))
        reading = host.read("nvml").nvml
    assert isinstance(reading, NvmlReading), reading
    return reading, findings


def false_words(findings: list[Finding], driver: str) -> list[str]:
    """What warns, fails or is unknown on a healthy machine, but for what is true of so old a driver."""
    model_missing = int(driver.partition(".")[0]) < 580  # a library without the calls of a newer board
    unknown = () if model_missing else (Verdict.UNKNOWN,)
    return [
        f"{f.check} {f.verdict.value} {f.cause} {f.subject}: {f.seen} {f.why}"
        for f in findings
        if f.verdict in (*LOUD, *unknown) and f.check not in ("stack", "loader")
    ]


@pytest.mark.parametrize(("driver", "name"), sampled(product(DRIVERS, BOARDS), lambda _, one: one in SAMPLE))
def test_no_driver_makes_a_healthy_board_look_ill(driver, name, tmp_path, activate):
    reading, findings = look(name, driver, tmp_path / "machine")

    words = false_words(findings, driver)
    assert [word for word in words if not (name == DIVIDED and word.startswith("mig warn mig-enabled"))] == []
    codes = {gap.code for gap in reading.gaps if gap.call in CALLS}
    assert (26 in codes) is (int(driver.partition(".")[0]) >= 590)
    if 26 in codes:
        assert {(f.verdict, f.code, f.values["call"]) for f in findings if f.check == "clock-limit"} == {NO_LONGER}
