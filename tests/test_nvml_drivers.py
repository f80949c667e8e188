"""Drivers from 470 to 615 on every board: what a driver does not offer yet, or no longer, is no fault of a machine."""

import re
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from gpucheck import simulator
from gpucheck.host import LiveSource, Place
from gpucheck.model import Finding, NvmlReading, Verdict
from tests import captures
from tests.boundary import quick_findings
from tests.shared import from_yaml, sampled

DRIVERS = (
    *("470.256.02", "525.147.05", "535.309.01", "550.163.01", "560.35.05", "570.211.01", "575.64.05"),
    *("580.178.04", "590.48.01", "595.91.07", "610.57.04", "615.71.09"),
)
BOARDS = [name for name in simulator.profile_names() if name != "no-gpu"]
DIVIDED = "a100-mig-x8"  # a warning of each GPU is right there: it is divided
SAMPLE = {("470.256.02", "dgx1-v100"), ("590.48.01", "p100-pcie-x2"), ("615.71.09", "rtx4090-x2")}
CALLS = ("nvmlDeviceGetApplicationsClock", "nvmlDeviceGetDefaultApplicationsClock")
DEPRECATED = "Requested functionality has been deprecated"
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


class Real(NamedTuple):
    """A real nvidia-smi -q of a driver from 590 on: the driver, the board, and what it printed for the clocks."""

    source: str
    driver: str
    name: str
    clocks: set[str]


def real_outputs() -> list[Real]:
    found = []
    for name in captures.NAMES:
        text = captures.text(name)
        for gpu in captures.gpus(name)[:1]:
            clocks = {gpu.findtext(f"{kind}applications_clocks/graphics_clock") or "" for kind in ("", "default_")}
            driver = re.search(r"<driver_version>([\d.]+)", text)
            assert driver
            found.append(Real(name, driver[1], gpu.findtext("product_name") or "", clocks))
    for path in sorted((Path(__file__).parent / "data" / "pastes").glob("nvidia-smi-q-*.yml")):
        text = from_yaml(path)["raw"]
        driver, board = (re.search(rf"{key}\s+: ([\w. ]+)", text) for key in ("Driver Version", "Product Name"))
        clocks = set(re.findall(r"Applications Clocks\n\s+Graphics\s+: (.+)", text))
        if driver and board and clocks:
            found.append(Real(path.stem, driver[1].strip(), board[1].strip(), {one.strip() for one in clocks}))
    return [one for one in found if int(one.driver.partition(".")[0]) >= 590]


REAL = real_outputs()
# Board of a real output -> the profile whose NVML answers for it.
PROFILES = {
    "NVIDIA L40S": "l40s-x4",
    "Tesla T4": "t4-vm-x1",
    "NVIDIA H200": "h200-x1",
    "NVIDIA H100 80GB HBM3": "hgx-h100-x8",
}


def test_there_are_real_outputs_of_drivers_from_590_on():
    assert {one.driver.partition(".")[0] for one in REAL} >= {"590", "595", "610"}
    assert {clock for one in REAL for clock in one.clocks} == {DEPRECATED}


@pytest.mark.parametrize("real", REAL, ids=lambda one: one.source)
def test_a_real_driver_replayed_through_nvml(real, tmp_path, activate):
    """What it printed as deprecated its library answers with 26, and the check skips with that reason."""
    profile = PROFILES.get(real.name, "rtx4090-x2")  # GeForce, of whatever generation
    assert profile != "rtx4090-x2" or "GeForce" in real.name
    reading, findings = look(profile, real.driver, tmp_path / "machine")

    assert {gap.code for gap in reading.gaps if gap.call in CALLS} == {26}
    assert {(f.verdict, f.code, f.values["call"]) for f in findings if f.check == "clock-limit"} == {NO_LONGER}
    assert false_words(findings, real.driver) == []
