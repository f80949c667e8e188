"""A GPU that is divided: its MIG devices as the real pynvml finds them, and what NVML no longer reports of the GPU."""

import pynvml
import pytest

from gpucheck import simulator
from gpucheck.simulator.answers import answers
from gpucheck.simulator.machine import Process, build
from tests.simulator.helpers import code_of, write

pytestmark = pytest.mark.slow

NOT_SUPPORTED, NOT_FOUND, INVALID = 3, 6, 2


def divided(*instances: str):
    """An A100 machine whose first GPU has these instances."""
    profile = simulator.load("hgx-a100-x8")
    machine = build(profile, profile.driver.state())
    machine.gpus[0].mig = instances
    machine.gpus[0].processes = [Process(pid=77, memory_mib=100, name="infer")]
    return machine


@pytest.fixture
def gpus(activate, nvml_on, tmp_path):
    """Both kinds of GPU: divided in three, and not divided."""
    activate("hgx-a100-x8")
    machine = write(tmp_path / "machine", "hgx-a100-x8")
    (machine / "machine.txt").write_text(answers(divided("3g.40gb", "2g.20gb", "1g.10gb")))
    return nvml_on(machine)[:2]


def test_devices_are_found_by_number_and_by_uuid(gpus):
    migs = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpus[0], index) for index in range(3)]

    assert pynvml.nvmlDeviceGetMigMode(gpus[0]) == [1, 1]
    assert [pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu) for gpu in gpus] == [7, 0]
    assert code_of(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpus[0], 3) == NOT_FOUND
    assert code_of(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpus[0], 7) == INVALID
    assert code_of(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpus[1], 0) == NOT_SUPPORTED
    for index, mig in enumerate(migs):
        uuid = pynvml.nvmlDeviceGetUUID(mig)
        assert uuid.startswith("MIG-")
        assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuid)) == index
        parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
        assert pynvml.nvmlDeviceGetUUID(parent) == pynvml.nvmlDeviceGetUUID(gpus[0])
    assert [pynvml.nvmlDeviceIsMigDeviceHandle(one).value for one in (*gpus, *migs)] == [0, 0, 1, 1, 1]
    assert code_of(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, gpus[0]) == INVALID
    assert len({pynvml.nvmlDeviceGetUUID(one) for one in (*gpus, *migs)}) == 5


def test_a_device_has_what_its_instance_has(gpus):
    migs = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpus[0], index) for index in range(3)]

    assert [pynvml.nvmlDeviceGetName(mig) for mig in migs] == [
        f"NVIDIA A100-SXM4-80GB MIG {name}" for name in ("3g.40gb", "2g.20gb", "1g.10gb")
    ]
    assert [pynvml.nvmlDeviceGetMemoryInfo(mig).total >> 20 for mig in migs] == [40192, 19968, 9728]
    assert [pynvml.nvmlDeviceGetGpuInstanceId(mig) for mig in migs] == [2, 3, 7]
    assert [pynvml.nvmlDeviceGetComputeInstanceId(mig) for mig in migs] == [0, 0, 0]


def test_a_process_is_on_the_gpu_and_on_its_device(gpus):
    mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpus[0], 0)
    (whole,), (part,) = (pynvml.nvmlDeviceGetComputeRunningProcesses(one) for one in (gpus[0], mig))

    assert (whole.pid, whole.gpuInstanceId, whole.computeInstanceId) == (77, 2, 0)
    assert part.pid == 77
    assert pynvml.nvmlDeviceGetMemoryInfo(mig).used == 100 << 20


def test_what_nvml_no_longer_tells_of_a_divided_gpu(gpus):
    """Use, rows and peer to peer; and of a MIG device nothing about the board."""
    mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpus[0], 0)

    assert code_of(pynvml.nvmlDeviceGetUtilizationRates, gpus[0]) == NOT_SUPPORTED
    assert code_of(pynvml.nvmlDeviceGetRemappedRows, gpus[0]) == NOT_SUPPORTED
    assert code_of(pynvml.nvmlDeviceGetProcessUtilization, gpus[0], 0) == NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetP2PStatus(gpus[0], gpus[1], 0) == pynvml.NVML_P2P_STATUS_NOT_SUPPORTED
    for call in (pynvml.nvmlDeviceGetPowerUsage, pynvml.nvmlDeviceGetPciInfo, pynvml.nvmlDeviceGetComputeMode):
        assert code_of(call, mig) == NOT_SUPPORTED
    assert code_of(pynvml.nvmlDeviceGetNvLinkState, mig, 0) == NOT_SUPPORTED
    assert code_of(pynvml.nvmlDeviceGetTopologyCommonAncestor, gpus[1], mig) == NOT_SUPPORTED


@pytest.mark.parametrize(
    ("instances", "reason"),
    [
        (("3g.40gb", "3g.40gb", "2g.20gb"), "are more than the 7 slices"),
        (("3g.40gb", "3g.40gb", "1g.10gb"), None),
        (("7g.80gb", "1g.10gb"), "are more than the 7 slices"),
        (("9g.90gb",), "has no instance '9g.90gb'. It has: 1g.10gb, 2g.20gb"),
    ],
)
def test_only_what_fits_a_gpu_can_be_made(instances, reason):
    if reason is None:
        assert "gpu.0.mig.count = 3" in answers(divided(*instances))
        return
    with pytest.raises(ValueError, match="mig: ") as caught:
        answers(divided(*instances))

    assert reason in caught.value.args[0]
