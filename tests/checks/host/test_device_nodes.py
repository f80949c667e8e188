"""Device files of the driver."""

import msgspec
import pytest

from gpucheck.checks.host import device_nodes
from tests.checks.judging import FAIL, PASS, UNKNOWN, WARN, judge
from tests.fakes import SYSTEM, facts
from tests.machines import p100, reading


@pytest.mark.parametrize(
    ("names", "container", "verdict"),
    [
        (("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"), None, PASS),
        (("nvidia0", "nvidia1", "nvidiactl"), None, WARN),
        (("nvidia0", "nvidia1", "nvidiactl"), "docker", FAIL),
        (("nvidia0", "nvidiactl", "nvidia-uvm"), None, FAIL),
        (None, None, UNKNOWN),
    ],
)
def test_device_files_are_what_cuda_needs(names, container, verdict):
    """A container without nvidia-uvm answers NVML and fails CUDA."""
    host = facts(
        nvml=reading(p100(0), p100(1)),
        folders={} if names is None else {"/dev": names},
        system=msgspec.structs.replace(SYSTEM, container=container),
    )

    (finding,) = judge(device_nodes, host)

    assert (finding.verdict, finding.cause) == (verdict, "device-node-missing" if verdict in (FAIL, WARN) else None)


def test_device_files_without_nvml_or_without_gpus_are_not_judged():
    """How many are needed is not known."""
    folders = {"/dev": ("nvidiactl", "nvidia-uvm")}

    (failed,) = judge(device_nodes, facts(folders=folders))
    (empty,) = judge(device_nodes, facts(folders=folders, nvml=reading()))

    assert (failed.verdict, failed.because_of) == (UNKNOWN, "driver")
    assert (empty.verdict, empty.because_of) == (UNKNOWN, "inventory")
