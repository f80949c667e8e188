"""What the service of a GPU asks for first, as the simulated library answers it and as an older one does not."""

import pynvml
import pytest

from gpucheck.host.nvml.calls import Calls
from gpucheck.host.nvml.links import fabric
from gpucheck.model import C2cLink, Confidential, RackPlace, SpareRows


def test_a_healthy_tray(reading):
    seen = reading("gb200-x4")
    first, second = seen.gpus[0].health, seen.gpus[1].health

    assert first.sram is not None
    assert (first.sram.volatile_uncorrected, first.sram.aggregate_uncorrected, first.sram.threshold_exceeded) == (
        0,
        0,
        False,
    )
    assert first.spare_rows == SpareRows(every=1480, most=0, some=0, few=0, none=0)
    assert first.rack == RackPlace(chassis_serial="SIMULATED", slot=14, tray=4, host_id=1, module_id=1)
    assert second.rack is not None
    assert second.rack.module_id == 2
    assert (first.gsp_firmware, first.nvlink_bandwidth, first.virtualization) == (seen.driver_version, "full", "none")
    assert (first.licensed, first.pcie_errors.recoveries) == (None, 0)
    assert seen.gpus[0].fabric.health_summary == "healthy"
    assert seen.confidential == Confidential(enabled=False)


def test_the_links_to_the_cpu(reading):
    up = {"active": True, "speed_mb_s": 44712, "interrupts": 0, "replays_in_a_row": 0, "low_power": False}
    gpu = reading("gb200-x4", "c2c-link:gpu=1,link=2,kind=replay", "c2c-link:gpu=1,link=3").gpus[1]
    expected = [C2cLink(link=link, replays=500 if link == 2 else 0, **up) for link in range(5)]
    expected[3] = C2cLink(link=3, replays=0, **up | {"active": False, "speed_mb_s": 0})

    assert gpu.health.c2c == tuple(expected)
    assert reading("hgx-h100-x8").gpus[0].health.c2c == ()


def test_a_board_without_them_has_none(reading):
    seen = reading("p100-pcie-x2")
    health = seen.gpus[0].health

    assert (health.sram, health.spare_rows, health.rack, health.gsp_firmware) == (None, None, None, None)
    assert (health.nvlink_bandwidth, health.licensed, seen.confidential) == (None, None, None)


@pytest.mark.parametrize(("kind", "counts"), [("parity", (0, 3, 0)), ("sec_ded", (0, 0, 3)), ("corrected", (3, 0, 0))])
def test_errors_of_the_sram_by_kind(reading, kind, counts):
    sram = reading("hgx-h100-x8", f"sram-errors:gpu=1,kind={kind},count=3,threshold=1").gpus[1].health.sram

    assert (sram.volatile_corrected, sram.volatile_parity, sram.volatile_sec_ded) == counts
    assert (sram.aggregate_corrected, sram.aggregate_parity, sram.aggregate_sec_ded) == counts
    assert sram.threshold_exceeded


@pytest.mark.parametrize(("profile", "mode"), [("hgx-h100-x8", "half"), ("hgx-b200-x8", "reduced (3)")])
def test_the_bandwidth_mode_of_the_system_and_that_of_the_gpu(reading, profile, mode):
    assert {gpu.health.nvlink_bandwidth for gpu in reading(profile, "nvlink-bandwidth-mode").gpus} == {mode}


@pytest.mark.parametrize("ready", [0, 1])
def test_confidential_computing(reading, ready):
    assert reading("h200-x1", f"confidential-not-ready:ready={ready}").confidential == Confidential(
        enabled=True, ready=bool(ready)
    )


@pytest.mark.parametrize("licensed", [0, 1])
def test_the_license_of_a_virtual_gpu(reading, licensed):
    health = reading("t4-vm-x1", f"vgpu-unlicensed:licensed={licensed}").gpus[0].health

    assert (health.virtualization, health.licensed) == ("vgpu", bool(licensed))


@pytest.mark.parametrize(
    ("knows", "summary", "mask"), [("v3", "limited-capacity", 0x1AA), ("v2", None, 0x1AA), ("v1", None, None)]
)
def test_an_older_library_is_asked_for_an_older_structure(monkeypatch, knows, summary, mask):
    """Version 3 has the summary, 2 the mask; the first call has no version."""
    versions = {"v3": {pynvml.nvmlGpuFabricInfo_v3, pynvml.nvmlGpuFabricInfo_v2}, "v2": {pynvml.nvmlGpuFabricInfo_v2}}

    def versioned(_, reference):
        info = reference._obj
        if info.version not in versions.get(knows, ()):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        info.state, info.healthMask = 3, 0x1AA
        if info.version == pynvml.nvmlGpuFabricInfo_v3:
            info.healthSummary = 3

    def first(_, reference):
        reference._obj.state = 3

    monkeypatch.setattr(pynvml, "nvmlDeviceGetGpuFabricInfoV", versioned)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetGpuFabricInfo", first)
    calls = Calls(lambda call, subject: None)
    seen = fabric(calls, "gpu:0000:1b:00.0", object())

    assert seen is not None
    assert (seen.state, seen.health_summary, seen.health_mask) == ("completed", summary, mask)
    assert calls.gaps == []
