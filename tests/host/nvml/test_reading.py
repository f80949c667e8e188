"""The pass over NVML: what a reading holds on each simulated machine, and that a refusal is a gap and no zero."""

import pytest

from gpucheck import simulator
from gpucheck.host import live_source
from gpucheck.host.nvml import calls as notation
from gpucheck.host.nvml.reading import read_nvml
from gpucheck.model import Health, NvmlReading
from gpucheck.simulator.machine.profile import gpus_of


@pytest.mark.parametrize("name", [n for n in simulator.profile_names() if n != "no-gpu"])
def test_a_healthy_machine_is_read_whole(reading, name):
    """Nothing is refused but what the product or its driver lacks."""
    seen = reading(name)
    assert isinstance(seen, NvmlReading)
    devices = gpus_of(simulator.load(name))

    assert [gpu.pci_bus_id for gpu in seen.gpus] == [device.bus_id for device in devices]
    assert {gap.name for gap in seen.gaps} <= {"NVMLError_NotSupported", "NVMLError_FunctionNotFound"}
    assert all(gpu.cpu_affinity and gpu.numa_node is not None and gpu.memory_bytes for gpu in seen.gpus)
    assert [row[n] for n, row in enumerate(seen.ancestors)] == ["X"] * len(devices)
    assert list(zip(*seen.ancestors, strict=True)) == list(seen.ancestors)


def test_pair_of_p100(reading):
    seen = reading("p100-pcie-x2")
    first = seen.gpus[0]

    assert (seen.driver_version, seen.nvml_version, seen.cuda_version) == ("580.178.04", "13.580.178.04", "13.0")
    assert seen.ancestors == (("X", "PIX"), ("PIX", "X"))
    assert seen.p2p == {
        "read": ((None, "OK"), ("OK", None)),
        "write": ((None, "OK"), ("OK", None)),
        "nvlink": ((None, "NS"), ("NS", None)),
    }
    assert (first.name, first.device_id, first.compute_capability) == ("Tesla P100-PCIE-16GB", "15f8", "6.0")
    assert (first.memory_bytes, first.bar1_bytes) == (16 << 30, 16 << 30)
    assert (first.numa_node, first.cpu_affinity) == (0, "0-13,28-41")
    assert (first.nvlinks, first.fabric) == ((), None)
    assert "nvmlDeviceGetGpuFabricInfoV" in {gap.call for gap in seen.gaps}


def test_links_and_fabric_of_h100(reading):
    """Eighteen links although an older header stops at twelve: the loop ends where NVML says so."""
    first = reading("hgx-h100-x8").gpus[0]

    assert first.active_nvlinks == len(first.nvlinks) == 18
    link = first.nvlinks[0]
    assert (link.link, link.version, link.remote_kind, link.remote_bus_id) == (0, 6, "switch", "0000:05:00.0")
    assert 26_000 < link.speed_mb_s < 27_000
    assert (link.replay_errors, link.recovery_errors, link.crc_errors) == (0, 0, 0)
    assert (first.fabric.state, first.fabric.status, first.fabric.clique_id) == ("completed", 0, 0)
    assert first.fabric.cluster_uuid == "00000000-0000-0000-0000-000000000000"


def test_switch_that_a_vm_cannot_see_is_a_gap(reading):
    seen = reading("h200-x1")

    assert {(link.remote_kind, link.remote_bus_id) for link in seen.gpus[0].nvlinks} == {("switch", None)}
    assert [gap.call for gap in seen.gaps].count("nvmlDeviceGetNvLinkRemotePciInfo") == 18


def test_the_short_pass_leaves_health_out(activate):
    """What a topology needs is in both; health is queried only on request."""
    activate("dgx1-v100", ())
    short, whole = (read_nvml(lambda call, subject: None, health=health) for health in (False, True))

    assert isinstance(short, NvmlReading)
    assert isinstance(whole, NvmlReading)
    assert {gpu.health for gpu in short.gpus} == {Health()}
    assert all(link.replay_errors is None for gpu in short.gpus for link in gpu.nvlinks)
    assert all(link.replay_errors == 0 for gpu in whole.gpus for link in gpu.nvlinks)
    assert whole.gpus[0].health.persistence is True
    assert whole.gpus[0].health.clocks_event_reasons == ("idle",)
    assert [gpu.nvlinks[0].speed_mb_s for gpu in short.gpus] == [gpu.nvlinks[0].speed_mb_s for gpu in whole.gpus]
    assert (short.ancestors, short.p2p) == (whole.ancestors, whole.p2p)


def test_lost_gpu_is_a_gap_and_the_others_are_read(reading):
    """Matrices are over the GPUs that are left; the index of each stays NVML's."""
    seen = reading("hgx-h100-x8", "gpu-lost:gpu=2")

    assert [gpu.index for gpu in seen.gpus] == [0, 1, 3, 4, 5, 6, 7]
    assert [len(row) for row in seen.ancestors] == [7] * 7
    (gap,) = (gap for gap in seen.gaps if gap.code == 15)
    assert (gap.call, gap.subject) == ("nvmlDeviceGetHandleByIndex", "gpu index 2")


def test_unsupported_values_are_none(changed):
    """A key that is missing is NOT_SUPPORTED, one call that fails is not the end of the pass."""
    missing = dict.fromkeys(("gpu.0.bar1.total", "gpu.0.pcie.width", "gpu.0.cpus"))
    seen = changed("p100-pcie-x2", missing | {"call.nvmlDeviceGetUUID": 999})

    first, second = seen.gpus
    assert (first.bar1_bytes, first.pcie.width, first.cpu_affinity) == (None, None, None)
    assert (second.bar1_bytes, second.pcie.width, second.cpu_affinity) == (16 << 30, 16, "0-13,28-41")
    assert first.uuid == second.uuid == "unknown"


def test_every_call_is_announced_before_it_is_made(activate):
    """The last name on the list is the one that hangs."""
    activate("p100-pcie-x2", ["gpu-lost:gpu=0"])
    calls = []
    read_nvml(lambda call, subject: calls.append((call, subject)))

    assert calls[0] == ("nvmlInit", "host")
    assert ("nvmlDeviceGetHandleByIndex", "gpu index 0") in calls
    assert ("nvmlDeviceGetName", "gpu:0000:05:00.0") in calls
    assert calls[-1] == ("nvmlShutdown", "host")


def test_in_process_and_child_read_the_same(activate):
    activate("dgx1-v100")
    here, there = (live_source(isolated=isolated, deadline_s=20).read("nvml").nvml for isolated in (False, True))

    assert isinstance(here, NvmlReading)
    assert here == there


@pytest.mark.parametrize(
    ("nvml_form", "linux"), [("00000000:3B:00.0", "0000:3b:00.0"), ("00010000:01:00.0", "10000:01:00.0")]
)
def test_bus_ids_are_written_as_linux_does(nvml_form, linux):
    assert notation.normal_bus_id(nvml_form) == linux


@pytest.mark.parametrize(
    ("cpus", "words"), [([], ""), ([3], "3"), ([0, 1, 2, 8], "0-2,8"), ([*range(4), *range(64, 68)], "0-3,64-67")]
)
def test_cpu_list(cpus, words):
    assert notation.cpu_list(cpus) == words
