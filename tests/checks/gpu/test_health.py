"""Checks of single GPUs: what the fault matrix does not have, one value each. Processes: what counts as busy."""

import msgspec
import pytest

from gpucheck.model import EccCounts, GpuProcess, NvmlGap, RetiredPages, RowRemap
from tests.checks.judging import PASS, codes, judge, with_health
from tests.fakes import SYSTEM, facts
from tests.machines import h100, reading

BRAKE, HOT = ("hw-slowdown", "hw-power-brake"), ("hw-slowdown", "hw-thermal")


def pages(single, double, *, pending):
    return RetiredPages(single_bit=single, double_bit=double, pending=pending)


RETIRED = pages(0, 1, pending=True)
REMAPPING = RowRemap(corrected=0, uncorrected=1, pending=True, failed=False)


@pytest.mark.parametrize(
    ("check", "changes", "code"),
    [
        ("memory-errors", {"ecc_counts": EccCounts(aggregate_uncorrected=3)}, "gpu.memory-errors-of-life"),
        ("memory-errors", {"retired_pages": RETIRED}, "gpu.page-retirement-pending"),
        ("memory-errors", {"retired_pages": pages(58, 1, pending=False)}, None),
        ("memory-errors", {"retired_pages": pages(58, 2, pending=False)}, "gpu.pages-used-up"),
        ("memory-errors", {"retired_pages": pages(0, 64, pending=True)}, "gpu.pages-used-up"),
        ("memory-errors", {"repairs_pending": ("channel",)}, "gpu.repair-pending"),
        ("memory-errors", {"repairs_pending": (), "unrepairable": False}, None),
        ("memory-errors", {"repairs_pending": ("TPC",), "unrepairable": True}, "gpu.memory-unrepairable"),
        ("memory-errors", {"inforom_valid": False}, "gpu.inforom-corrupted"),
        ("memory-errors", {"inforom_valid": True}, None),
        ("memory-errors", {"recovery_action": "reboot"}, "gpu.recovery-reboot"),
        ("memory-errors", {"recovery_action": "of-another-driver"}, "gpu.recovery-other"),
        # What the driver requires is not hidden by a repair that waits: it may be a reboot.
        ("memory-errors", {"recovery_action": "reboot", "row_remap": REMAPPING}, "gpu.recovery-reboot"),
        ("memory-errors", {"recovery_action": "reset", "row_remap": REMAPPING}, "gpu.row-remap-pending"),
        ("memory-errors", {"ecc_pending": False}, "gpu.ecc-mode-pending"),
        ("throttle", {"clocks_event_reasons": HOT}, "gpu.hardware-thermal-slowdown"),
        ("throttle", {"clocks_event_reasons": BRAKE}, "gpu.power-brake"),  # which is not cooled away
        ("throttle", {"clocks_event_reasons": ("hw-slowdown",)}, "gpu.hardware-slowdown"),
        ("throttle", {"temperature_c": 86, "temperature_margin_c": 4}, "gpu.near-slowdown-temperature"),
        # A software power cap is how a busy GPU runs.
        *[
            ("throttle", {"clocks_event_reasons": reasons}, None)
            for reasons in (("sw-power-cap",), ("app-clocks",), ())
        ],
        ("power-limit", {"power_limit_w": 700.0, "power_enforced_w": 700.0}, None),
        ("power-limit", {"power_limit_w": 700.0, "power_enforced_w": 500.0}, "gpu.power-capped"),
        ("power-limit", {"power_limit_w": 600.0, "power_enforced_w": 600.0}, "gpu.power-limit-lowered"),
        ("mig", {"mig": True, "mig_pending": True}, "gpu.mig-enabled"),
        ("mig", {"mig": True, "mig_pending": False}, "gpu.mig-pending"),
    ],
)
def test_one_value_is_one_code(check, changes, code):
    """On the GPU that has it and nowhere else."""
    host = facts(nvml=reading(with_health(h100(0)), with_health(h100(1), **changes)))

    assert codes(check, host) == [None, code]


def test_pass_of_memory_errors_names_only_what_was_reported():
    """A GPU without row remapping has none pending, and is not called free of it."""
    health = {"row_remap": None, "retired_pages": None}
    gap = NvmlGap(call="nvmlDeviceGetRemappedRows", subject="gpu:0000:1b:00.0", code=3, name="NotSupported")
    nvml = msgspec.structs.replace(reading(with_health(h100(0), **health)), gaps=(gap,))

    (finding,) = judge("memory-errors", facts(nvml=nvml))

    assert (finding.verdict, finding.seen) == (PASS, "0 uncorrectable ECC errors")


MPS = GpuProcess(pid=41, kind="compute", name="/usr/bin/nvidia-cuda-mps-server", memory_bytes=30 << 20)
JOB, DESKTOP = GpuProcess(pid=42, kind="compute", name="python3"), GpuProcess(pid=9, kind="graphics")


@pytest.mark.parametrize(
    ("users", "container", "code"),
    [
        ((DESKTOP,), None, None),
        ((MPS,), None, "gpu.mps-server-running"),  # it holds the GPU without a job, and never ends
        ((MPS, JOB), None, "gpu.processes-running"),
        ((JOB,), "kubernetes", "gpu.processes-running"),
        # NVML lists those of its own PID namespace only: none is no proof of an idle GPU.
        ((), "kubernetes", "gpu.processes-of-the-container"),
        # A process that hangs while it ends is in no list and keeps its memory.
        ((), None, "gpu.memory-kept"),
    ],
)
def test_a_gpu_is_busy_with_a_job(users, container, code):
    """What the GPU itself reports is in the evidence; a process without a memory size has no 0 MiB."""
    gpu = with_health(h100(0), processes=users, memory_used_bytes=70 << 30, gpu_utilization_percent=97)
    host = facts(nvml=reading(gpu), system=msgspec.structs.replace(SYSTEM, container=container))
    (finding,) = judge("processes", host)

    assert finding.code == code
    assert {"GPU memory in use: 71680 MiB", "GPU utilization: 97 %"} <= {*finding.evidence}
    assert ("process 42 python3: memory not reported" in finding.evidence) is (JOB in users)


@pytest.mark.parametrize(
    "health",
    [
        {"memory_used_bytes": 19 << 30},  # what the driver reserves, and small displays
        {"memory_used_bytes": None},
        {"memory_used_bytes": 70 << 30, "addressing_mode": "ats"},  # Linux uses the memory of a GPU of Grace Hopper
        {"memory_used_bytes": 70 << 30, "mig": True},
        {"memory_used_bytes": 70 << 30, "virtualization": "host-vgpu"},
    ],
)
def test_memory_in_use_without_a_process_may_be_usual(health):
    assert codes("processes", facts(nvml=reading(with_health(h100(0), processes=(), **health)))) == [None]


OK, NOTHING = (None, "OK", "OK"), (None,) * 3
PAIRS = {"read": (NOTHING, ("OK", None, "OK"), ("OK", "OK", None))}


def lacking(count, missing, *, value="recovery_action", code=3, p2p=None, **of_first):
    """Equal GPUs; those with a number in missing lack a value, with this code. of_first: health of GPU 0."""
    gpus = [with_health(h100(n), **({value: "none"} | (of_first if n == 0 else {}))) for n in range(count)]
    call = "nvmlDeviceGetP2PStatus" if p2p else "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"
    gaps = []
    for n in missing:
        names = [f"gpu:{gpus[n].pci_bus_id}"]
        if p2p:
            names = [
                f"pair:{a.pci_bus_id}-{b.pci_bus_id}" for a in gpus for b in gpus if a is not b and gpus[n] in (a, b)
            ]
        else:
            gpus[n] = with_health(gpus[n], **{value: None})
        gaps += [NvmlGap(call=call, subject=name, code=code, name="NotSupported") for name in names if code]
    return facts(nvml=msgspec.structs.replace(reading(*gpus), gaps=tuple(gaps), p2p=p2p or {}))


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (lacking(3, [0]), "gpu.answers-differ"),
        (lacking(3, [0], p2p=PAIRS), "gpu.answers-differ"),
        (lacking(3, [0], code=0), "gpu.answers-differ"),  # an answer that has no value
        (lacking(3, [0], code=999), None),  # an error, which the check that reads the value reports
        (lacking(3, [0, 1]), None),
        (lacking(3, [0, 1, 2]), None),
        (lacking(2, [0]), "gpu.answers-differ"),
        (lacking(4, [0, 1, 2]), None),
        (lacking(3, [0], mig=True), None),
        (lacking(3, [0], ecc=False), None),
        (lacking(1, [0]), "gpu.no-equal-gpus"),
    ],
)
def test_a_gpu_that_lacks_what_its_equals_have_is_unknown(found, code):
    assert [one for one in codes("nvml-answers", found) if one is not None] == ([code] if code else [])
