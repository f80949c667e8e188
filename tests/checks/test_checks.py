"""Promises that every check keeps, the ones added tomorrow included."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from gpucheck.checks import all_checks, checks_of
from gpucheck.model import DeviceFile, DriverState, KernelLog, Limits, NvmlFailure, NvmlReading, Verdict
from tests.checks.judging import exactly, judge
from tests.checks_page import page
from tests.fakes import facts
from tests.machines import LOADED, on_bus, p100, reading

EMPTY = NvmlReading(driver_version="580.178.04", nvml_version="13.580", cuda_version="13.0", gpus=())
HUNG = NvmlFailure(call="nvmlDeviceGetCount", code=-2, name="no answer within 20 s")


HIDDEN = (DeviceFile(name="nvidia1", bus_id=p100(1).pci_bus_id, error="EPERM"),)
BLIND = facts(kernel_log=KernelLog(denied="not root"), limits=Limits())
HOSTS = [
    facts(),
    facts(kernel_log=KernelLog(denied="not root"), limits=Limits(), packages=None, libraries=None),
    facts(nvml=EMPTY, driver=LOADED),
    facts(nvml=reading(p100(0), p100(1)), driver=LOADED, python={"torch": "2.13.0+cu130"}, folders={"/dev": ()}),
    facts(nvml=reading(p100(0)), pci=on_bus(p100(0), p100(1)), device_files=HIDDEN),
]
# An empty environment is evidence: there is nothing in it that steers.
NEED_NO_GPU = {"environment"}


@pytest.mark.parametrize("check", checks_of("quick"), ids=lambda c: c.name)
@pytest.mark.parametrize(
    "host",
    [
        BLIND,
        replace(BLIND, nvml=HUNG),
        replace(BLIND, nvml=EMPTY, driver=DriverState(loaded_version="580.178.04")),
    ],
)
def test_no_check_passes_a_host_it_cannot_see(check, host):
    """Zero evidence is UNKNOWN or SKIP with a reason; the one thing that may pass without GPUs is the driver."""
    findings = judge(check, host)

    assert findings
    for finding in findings:
        assert finding.check == check.name
        may_pass = check.name in NEED_NO_GPU or (check.name == "driver" and host.nvml is EMPTY)
        assert finding.verdict is not Verdict.PASS or may_pass


@pytest.mark.parametrize("check", checks_of("quick"), ids=lambda c: c.name)
@pytest.mark.parametrize("host", HOSTS)
def test_a_check_declares_all_that_it_reads(check, host):
    """A recording, a text and a live host are asked for nothing else."""
    needs = [*check.needs]
    needs += check.more(exactly(needs, host))

    assert list(check.evaluate(exactly(needs, host))) == list(check.evaluate(host))


TAGS = {"quick", "hardware", "software", "nvlink", "pcie", "memory", "settings", "limits", "container", "network"}
OF_STEPS = {"measure", "compute", "training", "collectives", "nic-bandwidth", "p2p"}


def test_names_are_unique_and_tags_are_known():
    """--only and --skip select by these words."""
    names = [check.name for check in all_checks()]

    assert len(names) == len(set(names))
    assert {tag for check in all_checks() for tag in check.tags} <= TAGS | OF_STEPS


def test_the_page_is_current():
    """After a change of a check: python -m tests.checks_page > docs/checks.md"""
    assert (Path(__file__).parents[2] / "docs" / "checks.md").read_text(encoding="utf-8") == page()
