"""Each fault shows where a reader would find it, and nowhere else."""

import re

import pynvml
import pytest

from gpucheck import simulator
from gpucheck.simulator.faults import apply
from gpucheck.simulator.machine import Machine, build
from gpucheck.simulator.machine.paths import p2p_status


def broken(profile_name: str, *faults: str) -> Machine:
    profile = simulator.load(profile_name)
    machine = build(profile, profile.driver.state())
    machine.faults = faults
    apply(machine)
    return machine


@pytest.mark.parametrize("fault", simulator.all_faults(), ids=lambda fault: fault.name)
def test_a_fault_is_one_file_with_its_own_name(fault):
    """Held for every fault, including the one you are about to add."""
    module = fault.apply.__module__.rpartition(".")[2]

    assert module.replace("_", "-") == fault.name
    assert re.fullmatch(r"[a-z0-9-]+", fault.name)
    assert fault.summary


def test_missing_gpu_is_not_counted_and_leaves_no_gap(nvml):
    """The driver numbers those that it has; the links of the others to it are what they were."""
    names = [pynvml.nvmlDeviceGetPciInfo(gpu).busId for gpu in nvml("dgx1-v100", "gpu-missing:gpu=2")]

    assert len(names) == 7
    assert "00000000:3D:00.0" not in names


def test_cable_is_down_at_both_ends():
    machine = broken("rtx3090-x2-nvlink", "nvlink-down:gpu=0,link=3")

    assert [[link.active for link in gpu.links] for gpu in machine.gpus] == [[True, True, True, False]] * 2


def test_switch_link_is_down_at_one_gpu_and_the_path_stays():
    machine = broken("hgx-h100-x8", "nvlink-down:gpu=0,link=3")

    assert [sum(link.active for link in gpu.links) for gpu in machine.gpus] == [17, 18, 18, 18, 18, 18, 18, 18]
    assert p2p_status(machine.gpus[0], machine.gpus[1], 2) == 0


def test_without_the_fabric_there_is_no_nvlink_path(nvml):
    """The links are up all the same: state of a port proves nothing on an NVSwitch machine."""
    a, b, *_ = nvml("hgx-h100-x8", "fabric-in-progress")
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(a, pynvml.byref(info))

    assert info.state == pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS
    assert pynvml.nvmlDeviceGetNvLinkState(a, 0) == 1
    assert (
        pynvml.nvmlDeviceGetP2PStatus(a, b, pynvml.NVML_P2P_CAPS_INDEX_NVLINK) == pynvml.NVML_P2P_STATUS_NOT_SUPPORTED
    )


def test_faults_add_up():
    machine = broken("hgx-h100-x8", "nvlink-down:gpu=0,link=0", "nvlink-down:gpu=0,link=1", "pcie-width:gpu=0,width=4")

    assert sum(link.active for link in machine.gpus[0].links) == 16
    assert machine.gpus[0].function.width == 4


def test_rejected_fault_leaves_no_machine_behind(activate, monkeypatch, tmp_path):
    """A second try must fail as the first did, not find a half-made directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        with pytest.raises(ValueError, match="width is missing"):
            activate("p100-pcie-x2", ["pcie-width:gpu=0"])

    assert list((tmp_path / "gpucheck/machines").iterdir()) == []
