"""Each fault shows where a reader would find it, and nowhere else; a wrong one is refused in words."""

import re

import pynvml
import pytest

from gpucheck import simulator
from gpucheck.simulator.machine import Machine, build
from gpucheck.simulator.machine.paths import p2p_status

MISMATCH, NOT_LOADED = 18, 9


def broken(profile_name: str, *faults: str) -> Machine:
    from gpucheck.simulator.faults import apply

    profile = simulator.load(profile_name)
    machine = build(profile, profile.driver.state())
    machine.faults = faults
    apply(machine)
    return machine


@pytest.fixture
def nvml(activate):
    """Activate a broken machine and start NVML on it."""

    def start(*arguments):
        activate(arguments[0], arguments[1:])
        pynvml.nvmlInit()

    yield start
    pynvml.nvmlShutdown()


@pytest.mark.parametrize("fault", simulator.all_faults(), ids=lambda fault: fault.name)
def test_a_fault_is_one_file_with_its_own_name(fault):
    """Held for every fault, including the one you are about to add."""
    module = fault.apply.__module__.rpartition(".")[2]

    assert module.replace("_", "-") == fault.name
    assert re.fullmatch(r"[a-z0-9-]+", fault.name)
    assert fault.summary


def test_the_faults_of_the_design_are_there():
    wanted = {
        "driver-mismatch", "driver-not-loaded", "nouveau", "gpu-missing", "pcie-width", "nvlink-down",
        "fabric-in-progress", "gpu-lost", "nvml-hang", "nvml-crash",
    }  # fmt: skip
    assert wanted <= {fault.name for fault in simulator.all_faults()}


@pytest.mark.parametrize(
    ("fault", "code"), [("driver-mismatch", MISMATCH), ("driver-not-loaded", NOT_LOADED), ("nouveau", NOT_LOADED)]
)
def test_driver_faults_stop_init(activate, fault, code):
    activate("p100-pcie-x2", [fault])
    with pytest.raises(pynvml.NVMLError) as caught:
        pynvml.nvmlInit()

    assert caught.value.value == code


def test_missing_gpu_is_not_counted_and_leaves_no_gap(nvml):
    """The driver numbers those that it has; the links of the others to it are what they were."""
    nvml("dgx1-v100", "gpu-missing:gpu=2")
    names = [pynvml.nvmlDeviceGetPciInfo(pynvml.nvmlDeviceGetHandleByIndex(index)).busId for index in range(7)]

    assert pynvml.nvmlDeviceGetCount() == 7
    assert "00000000:3D:00.0" not in names


def test_lost_gpu_is_counted_and_answers_nothing(nvml):
    nvml("p100-pcie-x2", "gpu-lost:gpu=1")
    assert pynvml.nvmlDeviceGetCount() == 2
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetHandleByIndex(1)


def test_narrowed_link_shows_now_and_not_in_the_maximum(nvml):
    nvml("hgx-h100-x8", "pcie-width:gpu=1,width=8")
    widths = [pynvml.nvmlDeviceGetCurrPcieLinkWidth(pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(8)]

    assert widths == [16, 8, 16, 16, 16, 16, 16, 16]
    assert pynvml.nvmlDeviceGetMaxPcieLinkWidth(pynvml.nvmlDeviceGetHandleByIndex(1)) == 16


def test_cable_is_down_at_both_ends():
    machine = broken("rtx3090-x2-nvlink", "nvlink-down:gpu=0,link=3")

    assert [[link.active for link in gpu.links] for gpu in machine.gpus] == [[True, True, True, False]] * 2


def test_switch_link_is_down_at_one_gpu_and_the_path_stays():
    machine = broken("hgx-h100-x8", "nvlink-down:gpu=0,link=3")

    assert [sum(link.active for link in gpu.links) for gpu in machine.gpus] == [17, 18, 18, 18, 18, 18, 18, 18]
    assert p2p_status(machine.gpus[0], machine.gpus[1], 2) == 0


def test_without_the_fabric_there_is_no_nvlink_path(nvml):
    """The links are up all the same: state of a port proves nothing on an NVSwitch machine."""
    nvml("hgx-h100-x8", "fabric-in-progress")
    a, b = pynvml.nvmlDeviceGetHandleByIndex(0), pynvml.nvmlDeviceGetHandleByIndex(1)
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


@pytest.mark.parametrize(
    ("profile", "fault", "reason"),
    [
        ("p100-pcie-x2", "pcie-with:gpu=0,width=8", "Did you mean pcie-width?"),
        ("p100-pcie-x2", "pcie-width:gpu=0", "width is missing. Syntax: pcie-width:gpu=N,width=N"),
        ("p100-pcie-x2", "pcie-width", "gpu is missing"),
        ("p100-pcie-x2", "pcie-width:gpu=0,width=8,depth=1", "invalid parameter 'depth=1'"),
        ("p100-pcie-x2", "pcie-width:gpu=0,gpu=1,width=8", "invalid parameter 'gpu=1'"),
        ("p100-pcie-x2", "pcie-width:gpu=0,width=", "invalid parameter 'width='"),
        ("p100-pcie-x2", "pcie-width:", "invalid parameter ''"),
        ("p100-pcie-x2", "pcie-width:gpu=-1,width=8", "gpu is a number of 0 or more, not '-1'"),
        ("p100-pcie-x2", "pcie-width:gpu=2,width=8", "there is no GPU 2; profile p100-pcie-x2 has GPUs 0 to 1"),
        ("p100-pcie-x2", "pcie-width:gpu=0,width=16", "choose one of [1, 2, 4, 8]"),
        ("p100-pcie-x2", "nvlink-down:gpu=0,link=0", "GPU 0 (Tesla P100-PCIE-16GB) has no NVLink"),
        ("h200-x1", "nvlink-down:gpu=0,link=18", "the active links of GPU 0 are [0, 1, "),
        ("hgx-a100-x8", "fabric-in-progress", "no GPU of profile hgx-a100-x8 reports"),
        ("no-gpu", "nouveau", "has no GPU for nouveau to hold"),
        ("no-gpu", "gpu-lost:gpu=0", "profile no-gpu has no GPU"),
        ("no-gpu", "driver-mismatch", "no driver is loaded"),
        ("p100-pcie-x2", "driver-mismatch:loaded=580.178.04", "is the version of the library too"),
    ],
)
def test_fault_that_does_not_fit_is_refused(profile, fault, reason):
    with pytest.raises((LookupError, ValueError)) as caught:
        broken(profile, fault)

    assert reason in str(caught.value.args[0])


def test_refused_fault_leaves_no_machine_behind(activate, monkeypatch, tmp_path):
    """A second try must refuse as the first did, not find a half-made directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        with pytest.raises(ValueError, match="width is missing"):
            activate("p100-pcie-x2", ["pcie-width:gpu=0"])

    assert list((tmp_path / "gpucheck/machines").iterdir()) == []
