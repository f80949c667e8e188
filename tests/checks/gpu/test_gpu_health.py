"""Checks of how a GPU is: a healthy one gets no complaint, one broken value is named with its cause."""

import msgspec
import pytest

from gpucheck.checks.gpu import (
    clock_limit,
    compute_mode,
    memory_errors,
    mig,
    persistence,
    power_limit,
    processes,
    throttle,
)
from gpucheck.checks.nvlink import errors as nvlink_errors
from gpucheck.checks.p2p import status as p2p_status
from gpucheck.checks.pcie import bar1
from gpucheck.model import EccCounts, GpuProcess, NvmlGap, RetiredPages, RowRemap, Verdict
from tests.checks.judging import judge, with_health
from tests.fakes import SYSTEM, FakeHost
from tests.machines import h100, p100, reading

CHECKS = (
    bar1,
    clock_limit,
    compute_mode,
    memory_errors,
    mig,
    nvlink_errors,
    p2p_status,
    persistence,
    power_limit,
    processes,
    throttle,
)
FAIL, WARN, SKIP, PASS, UNKNOWN = Verdict.FAIL, Verdict.WARN, Verdict.SKIP, Verdict.PASS, Verdict.UNKNOWN
PENDING = RowRemap(corrected=0, uncorrected=1, pending=True, failed=False)
FAILED = msgspec.structs.replace(PENDING, failed=True)
REFUSED = (("OK", "GNS"), ("GNS", "OK"))
ALL_OK = (("OK", "OK"), ("OK", "OK"))


def host(*gpus, p2p=ALL_OK, virtual=None):
    told = msgspec.structs.replace(reading(*gpus), p2p={"read": p2p, "write": p2p, "nvlink": p2p})
    return FakeHost(nvml_=told, system_=msgspec.structs.replace(SYSTEM, virtual=virtual))


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.NAME)
@pytest.mark.parametrize("gpu", [p100, h100])
def test_healthy_gpus_get_no_complaint(check, gpu):
    """On the old and on the new generation."""
    found = judge(check, host(with_health(gpu(0)), with_health(gpu(1))))

    assert {finding.verdict for finding in found} <= {PASS, SKIP}


@pytest.mark.parametrize(
    ("check", "changes", "verdict", "cause"),
    [
        (memory_errors, {"ecc_counts": EccCounts(volatile_uncorrected=1)}, FAIL, "ecc-uncorrected"),
        (memory_errors, {"ecc_counts": EccCounts(aggregate_uncorrected=2)}, WARN, "ecc-uncorrected"),
        (
            memory_errors,
            {"row_remap": PENDING},
            WARN,
            "row-remap",
        ),
        (
            memory_errors,
            {"row_remap": FAILED},
            FAIL,
            "row-remap",
        ),
        (memory_errors, {"retired_pages": RetiredPages(single_bit=0, double_bit=1, pending=True)}, WARN, "row-remap"),
        (memory_errors, {"recovery_action": "reboot"}, FAIL, "gpu-reset-required"),
        (throttle, {"clocks_event_reasons": ("hw-slowdown", "hw-thermal")}, FAIL, "throttled"),
        (throttle, {"clocks_event_reasons": ("hw-slowdown", "hw-power-brake")}, FAIL, "throttled"),
        (throttle, {"clocks_event_reasons": ("sw-thermal",)}, WARN, "throttled"),
        (throttle, {"temperature_c": 86}, WARN, "throttled"),
        (power_limit, {"power_limit_w": 350.0}, WARN, "power-limit-lowered"),
        (clock_limit, {"application_clock_mhz": 1200}, WARN, "clock-limited"),
        (persistence, {"persistence": False}, WARN, "persistence-off"),
        (compute_mode, {"compute_mode": "exclusive-process"}, WARN, "compute-mode-exclusive"),
        (compute_mode, {"compute_mode": "prohibited"}, FAIL, "compute-mode-exclusive"),
        (mig, {"mig": True, "mig_pending": True}, WARN, "mig-enabled"),
        (memory_errors, {"ecc_pending": False}, WARN, None),
        (mig, {"mig_pending": True}, WARN, "mig-enabled"),
        (processes, {"processes": (GpuProcess(pid=7, kind="compute"),)}, WARN, "gpu-busy"),
    ],
)
def test_one_broken_value_is_named_with_its_cause(check, changes, verdict, cause):
    """On the GPU that has it, by its bus id, and nowhere else."""
    found = judge(check, host(with_health(h100(0)), with_health(h100(1), **changes)))
    complaints = [finding for finding in found if finding.verdict is not PASS]

    assert [(f.verdict, f.cause, f.subject) for f in complaints] == [(verdict, cause, "gpu:0000:2b:00.0")]


@pytest.mark.parametrize("reasons", [("sw-power-cap",), ("app-clocks",), ()])
def test_what_is_normal_under_load_is_no_throttling(reasons):
    """A software power cap is how a busy GPU runs."""
    (finding,) = judge(throttle, host(with_health(h100(0), clocks_event_reasons=reasons)))

    assert finding.verdict is PASS


def test_a_graphics_process_does_not_make_a_gpu_busy():
    """A desktop is not a job."""
    (finding,) = judge(processes, host(with_health(p100(0), processes=(GpuProcess(pid=9, kind="graphics"),))))

    assert finding.verdict is PASS


@pytest.mark.parametrize(("code", "verdict"), [(3, SKIP), (13, SKIP), (4, UNKNOWN), (999, UNKNOWN)])
def test_what_nvml_refuses_is_a_skip_only_where_the_gpu_does_not_have_it(code, verdict):
    """Not supported and not known are two things, and neither is a pass."""
    gap = NvmlGap(call="nvmlDeviceGetPersistenceMode", subject="gpu:0000:1b:00.0", code=code, name="Refused")
    told = msgspec.structs.replace(reading(with_health(h100(0), persistence=None)), gaps=(gap,))

    (finding,) = judge(persistence, FakeHost(nvml_=told))

    assert finding.verdict is verdict
    assert verdict is SKIP or "Refused" in finding.evidence[0]


@pytest.mark.parametrize(
    ("capability", "virtual", "verdict"), [("8.9", None, WARN), ("8.9", "kvm", SKIP), ("7.5", None, SKIP)]
)
def test_a_small_window_is_a_fault_only_where_a_larger_one_is_possible(capability, virtual, verdict):
    """A T4 has no more than 256 MiB, and a virtual machine gets what its host gives."""
    gpus = [msgspec.structs.replace(p100(n), compute_capability=capability, bar1_bytes=256 << 20) for n in range(2)]

    found = judge(bar1, host(*gpus, virtual=virtual))

    assert {(f.verdict, f.cause) for f in found} == {(verdict, "rebar-off" if verdict is WARN else None)}


def test_a_small_window_costs_a_geforce_card_nothing_without_peers_over_pcie():
    """Its copies are staged through the host. A data centre card comes with a large window, whatever it copies over."""
    small = {"bar1_bytes": 256 << 20}
    cards = [msgspec.structs.replace(_geforce(n), **small) for n in range(2)]
    boards = [msgspec.structs.replace(h100(n), **small) for n in range(2)]

    assert {f.verdict for f in judge(bar1, host(*cards, p2p=REFUSED))} == {SKIP}
    assert {f.verdict for f in judge(bar1, host(*cards))} == {WARN}
    assert {f.verdict for f in judge(bar1, host(*boards))} == {WARN}


def test_peers_are_read_by_place_and_not_by_the_index_of_nvml():
    """NVML keeps the numbers of the GPUs when it has lost one, and the matrix has no row for that one."""
    cards = [msgspec.structs.replace(_geforce(n), bar1_bytes=256 << 20, index=index) for n, index in ((0, 0), (1, 3))]

    assert {f.verdict for f in judge(bar1, host(*cards))} == {WARN}
    assert {f.verdict for f in judge(bar1, host(*cards, p2p=REFUSED))} == {SKIP}


@pytest.mark.parametrize(("code", "verdict"), [(3, SKIP), (13, SKIP), (999, UNKNOWN), (4, UNKNOWN), (None, UNKNOWN)])
def test_a_small_window_is_not_judged_by_peers_that_are_not_known(code, verdict):
    """No answer to the P2P status is not "no peer"."""
    cards = [msgspec.structs.replace(_geforce(n), bar1_bytes=256 << 20) for n in range(2)]
    made = host(*cards, p2p=((None, None), (None, None)))
    a, b = (card.pci_bus_id for card in cards)
    gaps = [
        NvmlGap(call="nvmlDeviceGetP2PStatus", subject=f"pair:{pair}", code=code, name="Refused")
        for pair in (f"{a}-{b}", f"{b}-{a}")
        if code is not None
    ]
    made.nvml_ = msgspec.structs.replace(made.nvml_, gaps=tuple(gaps))

    assert {f.verdict for f in judge(bar1, made)} == {verdict}


def test_a_small_window_of_a_gpu_without_a_compute_capability_is_unknown():
    """Neither NVML nor the table reports what the card should have."""
    card = msgspec.structs.replace(p100(0), device_id="ffff", compute_capability=None, bar1_bytes=256 << 20)

    (finding,) = judge(bar1, host(card))

    assert (finding.verdict, finding.why.partition(":")[0]) == (UNKNOWN, "required BAR1 size unknown")


@pytest.mark.parametrize(
    ("check", "changes", "seen"),
    [
        (memory_errors, {"ecc_counts": EccCounts(volatile_uncorrected=1)}, "1 uncorrectable ECC error (volatile)"),
        (memory_errors, {"ecc_counts": EccCounts(aggregate_uncorrected=3)}, "3 uncorrectable ECC errors (aggregate)"),
        (memory_errors, {"ecc_pending": False}, "ECC change pending (now on, off after reset)"),
        (mig, {"mig": True, "mig_pending": True}, "MIG enabled"),
        (mig, {"mig_pending": True}, "MIG change pending (now off, on after reset)"),
        (mig, {"mig": True, "mig_pending": False}, "MIG change pending (now on, off after reset)"),
        (persistence, {"persistence": False}, "persistence mode off"),
        (compute_mode, {"compute_mode": "exclusive-process"}, "compute mode exclusive-process"),
        (throttle, {"temperature_c": 86}, "86 C"),
    ],
)
def test_headline_is_the_observed_value_with_unit_and_noun(check, changes, seen):
    (finding,) = judge(check, host(with_health(h100(0), **changes)))

    assert (finding.verdict in (WARN, FAIL), finding.seen) == (True, seen)


def test_pass_of_memory_errors_names_only_what_was_reported():
    """A GPU without row remapping has none pending, and is not called free of it."""
    health = {"row_remap": None, "retired_pages": None}
    gap = NvmlGap(call="nvmlDeviceGetRemappedRows", subject="gpu:0000:1b:00.0", code=3, name="NotSupported")
    made = host(with_health(h100(0), **health))
    made.nvml_ = msgspec.structs.replace(made.nvml_, gaps=(gap,))

    (finding,) = judge(memory_errors, made)

    assert (finding.verdict, finding.seen) == (PASS, "0 uncorrectable ECC errors")


@pytest.mark.parametrize(
    ("reasons", "advice", "other"),
    [
        (("hw-slowdown", "hw-power-brake"), "power brake signal", "airflow"),
        (("hw-slowdown", "hw-thermal"), "airflow", "power supplies"),
        (("sw-thermal",), "airflow", "power supplies"),
    ],
)
def test_the_remedy_of_throttling_follows_its_reason(reasons, advice, other):
    """A power brake is not cooled away."""
    (finding,) = judge(throttle, host(with_health(h100(0), clocks_event_reasons=reasons)))

    assert (advice in finding.fix, other in finding.fix) == (True, False)


MPS = GpuProcess(pid=41, kind="compute", name="/usr/bin/nvidia-cuda-mps-server", memory_bytes=30 << 20)
JOB = GpuProcess(pid=42, kind="compute", name="python3")


@pytest.mark.parametrize(
    ("users", "words"), [((MPS,), "CUDA MPS server"), ((MPS, JOB), "Other processes"), ((JOB,), "Other processes")]
)
def test_the_mps_server_is_named_because_it_never_ends(users, words):
    """It holds the GPU without a job, so that nothing is ever measured there; with a job it is the job's."""
    (finding,) = judge(processes, host(with_health(h100(0), processes=users)))

    assert (finding.verdict, finding.cause, words in finding.why) == (WARN, "gpu-busy", True)
    assert ("nvidia-cuda-mps-control" in finding.fix) == (users == (MPS,))


def test_a_process_without_a_reported_memory_size_has_no_0_mib():
    (finding,) = judge(processes, host(with_health(h100(0), processes=(JOB,))))

    assert finding.evidence[0] == "process 42 python3: memory not reported"


@pytest.mark.parametrize(("users", "verdict"), [((), SKIP), ((JOB,), WARN)])
def test_no_process_in_a_container_is_no_proof_of_an_idle_gpu(users, verdict):
    """NVML lists those of its own PID namespace only; what the GPU itself reports is in the evidence."""
    made = host(with_health(h100(0), processes=users, memory_used_bytes=70 << 30, gpu_utilization_percent=97))
    made.system_ = msgspec.structs.replace(SYSTEM, container="kubernetes")

    (finding,) = judge(processes, made)

    assert finding.verdict is verdict
    assert {"GPU memory in use: 71680 MiB", "GPU utilization: 97 %"} <= set(finding.evidence)
    assert verdict is not SKIP or "kubernetes container" in finding.why


@pytest.mark.parametrize(
    ("counters", "verdict"),
    [({"recovery_errors": 1}, WARN), ({"crc_errors": 101}, WARN), ({"crc_errors": 40, "replay_errors": 60}, PASS)],
)
def test_links_that_repeat_or_retrain_are_named(counters, verdict):
    """Some corrected errors are normal; a recovery is not."""
    gpu = h100(0)
    zero = {"replay_errors": 0, "recovery_errors": 0, "crc_errors": 0}
    links = tuple(msgspec.structs.replace(link, **zero) for link in gpu.nvlinks)
    worn = msgspec.structs.replace(links[5], **counters)
    gpu = msgspec.structs.replace(gpu, nvlinks=(*links[:5], worn, *links[6:]))

    (finding,) = judge(nvlink_errors, host(gpu))

    assert finding.verdict is verdict
    assert finding.evidence[0].startswith("NVLink 5: ")


def _geforce(index):
    return msgspec.structs.replace(
        with_health(p100(index)), name="NVIDIA GeForce RTX 4090", device_id="2684", compute_capability="8.9"
    )


@pytest.mark.parametrize(
    ("gpus", "virtual", "verdict", "cause"),
    [
        ((with_health(p100(0)), with_health(p100(1))), None, FAIL, "p2p-unsupported-pair"),
        ((with_health(p100(0)), with_health(p100(1))), "kvm", SKIP, "vm-no-p2p"),
        ((_geforce(0), _geforce(1)), None, SKIP, "geforce-p2p-disabled"),
        ((with_health(p100(0)), _geforce(1)), None, SKIP, "p2p-unsupported-pair"),
        ((with_health(p100(0), mig=True), with_health(p100(1))), None, SKIP, "mig-enabled"),
    ],
)
def test_missing_peer_access_is_a_fault_only_where_it_is_not_by_design(gpus, virtual, verdict, cause):
    """GeForce, unequal models, virtual machines and MIG have none."""
    told = msgspec.structs.replace(reading(*gpus), p2p={"read": REFUSED, "write": REFUSED})
    here = FakeHost(nvml_=told, system_=msgspec.structs.replace(SYSTEM, virtual=virtual))

    (finding,) = judge(p2p_status, here)

    assert (finding.verdict, finding.cause) == (verdict, cause)


def test_links_that_are_up_and_not_used_fail():
    """Ports of an NVSwitch board are up although the fabric was never set up."""
    gpus = (with_health(h100(0)), with_health(h100(1)))
    told = msgspec.structs.replace(reading(*gpus), p2p={"read": ALL_OK, "write": ALL_OK, "nvlink": REFUSED})

    found = judge(p2p_status, FakeHost(nvml_=told))

    assert [(f.verdict, f.cause) for f in found] == [(PASS, None), (FAIL, "fabric-manager-down")]


def test_peer_access_that_was_not_told_is_unknown():
    """Zero evidence."""
    told = msgspec.structs.replace(reading(p100(0), p100(1)), p2p={})

    (finding,) = judge(p2p_status, FakeHost(nvml_=told))

    assert finding.verdict is UNKNOWN
