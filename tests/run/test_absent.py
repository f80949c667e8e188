"""Commands that measure all GPUs of a host: those that they could not measure are findings, too."""

import pytest
from msgspec.structs import replace

from gpucheck.model import NvmlFailure, Verdict
from gpucheck.model.answer import Answer, Clock
from gpucheck.model.finding import Finding
from gpucheck.run.absent import with_absent
from tests.machines import h100, whole_host

HOST = whole_host(h100(0), h100(1))
ONE_LEFT = replace(HOST, nvml=whole_host(h100(0)).nvml)
NO_DRIVER = NvmlFailure(call="nvmlInit", code=9, name="NVMLError_DriverNotLoaded", detail="")
PASSED = Finding(check="p2p-integrity", verdict=Verdict.PASS, subject="host")


@pytest.mark.parametrize(
    ("host", "found"),
    [
        (HOST, []),
        (ONE_LEFT, ["inventory"]),
        (replace(HOST, nvml=NO_DRIVER), ["driver"]),
        (replace(HOST, nvml=NO_DRIVER, pci=()), []),
    ],
    ids=["all", "one left", "no driver", "no GPU"],
)
def test_a_gpu_that_could_not_be_measured_is_the_first_finding(host, found):
    """The rest passes: one GPU alone, or processes on the CPU."""
    measured = Answer(schema="", **Clock().answer(host, (PASSED,)))
    *absent, last = with_absent(measured, host).findings

    assert [finding.check for finding in absent] == found
    assert (last.check, with_absent(measured, host).verdict is Verdict.PASS) == ("p2p-integrity", not found)
