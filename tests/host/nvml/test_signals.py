"""What the service of a GPU asks for first, as the simulated library answers it and as an older one does not."""

import pynvml
import pytest

from gpucheck.host.nvml.calls import Calls
from gpucheck.host.nvml.reading import fabric
from gpucheck.model import Confidential, RackPlace, SpareRows


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


def test_a_board_without_them_has_none(reading):
    seen = reading("p100-pcie-x2")
    health = seen.gpus[0].health

    assert (health.sram, health.spare_rows, health.rack, health.gsp_firmware) == (None, None, None, None)
    assert (health.nvlink_bandwidth, health.licensed, seen.confidential) == (None, None, None)


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
