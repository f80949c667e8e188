"""Promises that every check keeps, the ones added tomorrow included."""

from dataclasses import replace

import pytest

from gpucheck.checks import all_checks
from gpucheck.model import DriverState, KernelLog, Limits, NvmlFailure, NvmlReading, Verdict
from gpucheck.model.facts import BY_NAME, Facts
from tests.checks.judging import judge
from tests.fakes import FakeHost, facts
from tests.machines import LOADED, p100, reading

EMPTY = NvmlReading(driver_version="580.178.04", nvml_version="13.580", cuda_version="13.0", gpus=())
HUNG = NvmlFailure(call="nvmlDeviceGetCount", code=-2, name="no answer within 20 s")


BLIND = FakeHost(kernel_log_=KernelLog(denied="not root"), limits_=Limits())
HOSTS = [
    facts(),
    facts(kernel_log=KernelLog(denied="not root"), limits=Limits(), packages=None, libraries=None),
    facts(nvml=EMPTY, driver=LOADED),
    facts(nvml=reading(p100(0), p100(1)), driver=LOADED, python={"torch": "2.13.0+cu130"}, folders={"/dev": ()}),
]
# An empty environment is evidence: there is nothing in it that steers.
NEED_NO_GPU = {"environment"}


@pytest.mark.parametrize("check", all_checks(), ids=lambda c: c.name)
@pytest.mark.parametrize(
    "host",
    [
        BLIND,
        replace(BLIND, nvml_=HUNG),
        replace(BLIND, nvml_=EMPTY, driver_=DriverState(loaded_version="580.178.04")),
    ],
)
def test_no_check_passes_a_host_it_cannot_see(check, host):
    """Zero evidence is UNKNOWN or SKIP with a reason; the one thing that may pass without GPUs is the driver."""
    findings = judge(check, host)

    assert findings
    for finding in findings:
        assert finding.check == check.name
        may_pass = check.name in NEED_NO_GPU or (check.name == "driver" and host.nvml_ is EMPTY)
        assert finding.verdict is not Verdict.PASS or may_pass


class Only(dict):
    """Answers by name of a host that was asked everything, without those that a check does not declare."""

    def __init__(self, names, every):
        super().__init__({name: every[name] for name in names})


def exactly(needs, every):
    """The facts with these needs and no others."""
    named = {kind: [need.partition(":")[2] for need in needs if need.startswith(f"{kind}:")] for kind in BY_NAME}
    parts = {need: getattr(every, need) for need in needs if ":" not in need}
    answers = {
        field: Only(named[kind], getattr(every, field))
        for kind, field in BY_NAME.items()
        if kind != "library" and getattr(every, field) is not None
    }
    libraries = {"library_names": tuple(named["library"]), "libraries": every.libraries} if named["library"] else {}
    return Facts(**{"packages": None, **parts, **answers, **libraries})


@pytest.mark.parametrize("check", [one for one in all_checks() if one.probe is None], ids=lambda c: c.name)
@pytest.mark.parametrize("host", HOSTS)
def test_a_check_declares_all_that_it_reads(check, host):
    """A recording, a text and a live host are asked for nothing else."""
    needs = [*check.needs]
    needs += check.more(exactly(needs, host))

    assert list(check.evaluate(exactly(needs, host))) == list(check.evaluate(host))


def test_names_are_unique_and_tags_are_known():
    """--only and --skip select by these words, so a check must not share a tag's name."""
    checks = all_checks()
    names = [check.name for check in checks]
    tags = set().union(*(check.tags for check in checks))

    assert len(names) == len(set(names))
    assert tags <= {
        "quick",
        "hardware",
        "software",
        "nvlink",
        "pcie",
        "memory",
        "settings",
        "limits",
        "container",
    }
