"""Refused, empty and zero answers: no check passes what it could not read, and each refusal has its own code."""

import pytest
from msgspec.structs import replace

from gpucheck.checks import all_checks
from gpucheck.checks.pcie import bar1
from gpucheck.checks.pcie import errors as pcie_errors
from gpucheck.checks.pcie import link as pcie_link
from gpucheck.host.nvml.health import REASON_CALLS
from gpucheck.model import DEFECT, EccCounts, NvmlGap, PcieErrors, Verdict
from tests.checks.judging import judge
from tests.fakes import LIMITS, SYSTEM, facts
from tests.machines import LOADED, h100, on_bus, reading

GPUS = (h100(0), h100(1))
BUS_ID = GPUS[1].pci_bus_id
NOT_SUPPORTED, OLD_LIBRARY, LOST = 3, 13, (15, 16)
# What a finding has in place of a refused value, by NVML's code.
CODES = {
    NOT_SUPPORTED: None,
    4: "nvml.access-denied",
    9: "nvml.call-failed",
    OLD_LIBRARY: "nvml.call-missing",
    15: "nvml.gpu-lost",
    16: "nvml.reset-required",
    17: "nvml.access-denied",
    999: "nvml.call-failed",
    DEFECT: "nvml.result-unreadable",
}
NO_COUNTS = EccCounts()
ECC = {"health.ecc_counts": NO_COUNTS}
PAGES = "nvmlDeviceGetRetiredPagesPendingStatus"
RUNNING = "nvmlDeviceGet{}RunningProcesses{}"
# Check, what NVML did not report (None if nothing else is written), and the calls that it refused.
REFUSED = [
    (bar1, "bar1_bytes", ["nvmlDeviceGetBAR1MemoryInfo"]),
    ("clock-limit", "health.application_clock_mhz", ["nvmlDeviceGetApplicationsClock"]),
    ("clock-limit", "health.default_application_clock_mhz", ["nvmlDeviceGetDefaultApplicationsClock"]),
    ("compute-mode", "health.compute_mode", ["nvmlDeviceGetComputeMode"]),
    (
        "memory-errors",
        {**ECC, "health.row_remap": None, "health.retired_pages": None},
        ["nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", PAGES],
    ),
    ("mig", "health.mig", ["nvmlDeviceGetMigMode"]),
    (pcie_errors, {"health.pcie_errors": PcieErrors()}, ["nvmlDeviceGetPcieReplayCounter"]),
    (pcie_errors, {"health.pcie_errors": PcieErrors()}, ["NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR"]),
    (pcie_errors, {"health.pcie_errors": PcieErrors()}, ["nvmlDeviceGetFieldValues"]),
    (pcie_link, "pcie.width", ["nvmlDeviceGetCurrPcieLinkWidth"]),
    (pcie_link, "pcie.max_width", ["nvmlDeviceGetMaxPcieLinkWidth"]),
    ("persistence", "health.persistence", ["nvmlDeviceGetPersistenceMode"]),
    ("power-limit", "health.power_limit_w", ["nvmlDeviceGetPowerManagementLimit"]),
    ("power-limit", "health.power_default_w", ["nvmlDeviceGetPowerManagementDefaultLimit"]),
    *[
        ("processes", "health.processes", [RUNNING.format(kind, version)])
        for kind in ("Compute", "Graphics")
        for version in ("", "_v2", "_v1")
    ],
    *[("throttle", "health.clocks_event_reasons", [call]) for call in REASON_CALLS],
]
NODES = "/sys/devices/system/node"


def changed(value, changes):
    """A struct with these fields changed, named by their path; a name alone is changed to None."""
    for path, new in (changes if isinstance(changes, dict) else {changes: None}).items():
        first, _, rest = path.partition(".")
        inner = changed(getattr(value, first), {rest: new}) if rest else new
        value = replace(value, **{first: inner})
    return value


def host(changes, calls, code, *, subject=f"gpu:{BUS_ID}", container=None):
    """A host of two GPUs; the second does not report what changes names, because of the refusals."""
    one, other = (replace(gpu, cpu_affinity="0-31") for gpu in GPUS)
    gpus = (one, changed(other, changes))
    gaps = tuple(NvmlGap(call=call, subject=subject, code=code, name="NVMLError_Refused") for call in calls)
    return facts(
        nvml=replace(reading(*gpus), gaps=gaps),
        pci=on_bus(*gpus),
        driver=LOADED,
        files={f"{NODES}/node0/cpulist": "0-31\n", f"{NODES}/node1/cpulist": "32-63\n", "/proc/uptime": "36000.00 1.0"},
        folders={
            "/dev": ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"),
            "/sys/devices/system/cpu": ("cpu0", "online"),
            NODES: ("node0", "node1"),
        },
        system=replace(SYSTEM, container=container),
    )


def about_the_gpu(check, made):
    found = judge(check, made)
    assert found
    return [finding for finding in found if finding.subject == f"gpu:{BUS_ID}"]


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(("check", "changes", "calls"), REFUSED)
def test_refused_value_is_never_passed(check, changes, calls, code):
    """Not supported, not in this library, not permitted and lost are four things."""
    found = about_the_gpu(check, host(changes, calls, code))
    if code == NOT_SUPPORTED:  # this GPU does not have it, and the other one does
        assert not found
        return
    (finding,) = found
    assert finding.verdict is (Verdict.SKIP if code == OLD_LIBRARY else Verdict.UNKNOWN)
    assert finding.because_of == ("inventory" if code in LOST else None)
    assert (finding.code, finding.values["nvml_code"]) == (CODES[code], code)
    assert calls[0] in finding.evidence[0]


def test_a_value_that_no_gpu_has_is_skipped_once_for_the_host():
    made = host("health.mig", ["nvmlDeviceGetMigMode"], NOT_SUPPORTED)
    alone = replace(made, nvml=replace(made.nvml, gpus=made.nvml.gpus[1:]))
    (finding,) = judge("mig", alone)

    assert (finding.verdict, finding.subject, finding.code) == (Verdict.SKIP, "host", "gpu.no-mig")


@pytest.mark.parametrize(("check", "changes", "calls"), REFUSED)
def test_missing_value_without_a_refusal_is_unknown(check, changes, calls):
    assert [finding.verdict for finding in about_the_gpu(check, host(changes, [], 0))] == [Verdict.UNKNOWN]


def test_recordings_made_before_clocks_were_queried_skip_and_pass_nothing():
    """They have neither clock."""
    clocks = {"health.application_clock_mhz": None, "health.default_application_clock_mhz": None}

    assert about_the_gpu("clock-limit", host(clocks, [], 0)) == []


@pytest.mark.parametrize(
    ("check", "changes"),
    [
        (bar1, {"bar1_bytes": 0}),
        ("clock-limit", {"health.application_clock_mhz": 0}),
        ("clock-limit", {"health.application_clock_mhz": 0, "health.default_application_clock_mhz": 0}),
        ("compute-mode", {"health.compute_mode": "unknown-8"}),
        (pcie_link, {"pcie.width": 0}),
        (pcie_link, {"pcie.width": 0, "pcie.max_width": 0}),
        ("power-limit", {"health.power_limit_w": 0.0, "health.power_default_w": 0.0}),
        ("power-limit", {"health.power_default_w": 0.0}),
    ],
)
def test_zero_and_unknown_values_are_no_measurement(check, changes):
    """0 lanes of 0, 0 W of 200 to 700 W and 0 MHz are not what a GPU has."""
    (finding,) = about_the_gpu(check, host(changes, [], 0))

    assert finding.verdict is Verdict.UNKNOWN


def test_missing_temperature_margin_is_not_exceeded():
    made = host({"health.temperature_margin_c": None, "health.temperature_slowdown_c": None}, [], 0)

    (finding,) = about_the_gpu("throttle", made)

    assert finding.verdict is Verdict.PASS
    assert finding.evidence[1] == "core temperature 35 C"


NEED_SYSFS = {"cpu-governor", "iommu", "module-flavour", "numa", "pcie-errors", "pcie-path", "locked-memory"}


@pytest.mark.parametrize("check", [c for c in all_checks() if c.name in NEED_SYSFS], ids=lambda c: c.name)
def test_host_whose_sysfs_is_not_visible_passes_nothing_of_it(check):
    """A container without /sys: NVML answers, and the kernel's files are unread, not absent."""
    blind = facts(nvml=reading(*GPUS), driver=LOADED, limits=replace(LIMITS, memlock_bytes=0))

    assert {finding.verdict for finding in judge(check, blind)} == {Verdict.UNKNOWN}
