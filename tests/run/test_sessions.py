"""A report of a session with some of the GPUs, compared with the host as it is expected or was."""

import json
from functools import partial as bound

import pytest
from msgspec.structs import replace

from gpucheck import comparison
from gpucheck.model import DeviceFile, NvmlFailure, Verdict
from gpucheck.render.formats import to_json
from tests.machines import p100, reading, whole_host
from tests.run.test_run import quick

GPUS = tuple(p100(n) for n in range(4))
FILES = tuple(
    DeviceFile(name=f"nvidia{n}", bus_id=gpu.pci_bus_id, error="EPERM" if n > 1 else None) for n, gpu in enumerate(GPUS)
)
WHOLE = whole_host(*GPUS)
SESSION = replace(WHOLE, nvml=reading(*GPUS[:2]), device_files=FILES)


def loud(report):
    return [(f.check, f.verdict, f.subject) for f in report.findings if f.verdict is not Verdict.PASS and f.fix]


def test_the_report_says_that_it_is_partial():
    document = json.loads(to_json(quick(SESSION)))

    assert document["verdict"] == "pass"
    assert document["partial"] == {
        "usable": ["0000:03:00.0", "0000:04:00.0"],
        "hidden": ["0000:05:00.0", "0000:06:00.0"],
        "by": "device-cgroup",
    }
    assert json.loads(to_json(quick(WHOLE)))["partial"] is None


def test_hidden_gpus_are_not_gone_since_the_baseline():
    before = quick(WHOLE)
    now = quick(SESSION, comparisons=[bound(comparison.compare, before)])
    gone = quick(replace(SESSION, device_files=()), comparisons=[bound(comparison.compare, before)])

    assert now.verdict is Verdict.PASS
    assert {f.verdict for f in now.findings if f.check == "baseline"} == {Verdict.SKIP}
    assert ("baseline", Verdict.FAIL, "gpu:0000:05:00.0") in loud(gone)


@pytest.mark.parametrize(("count", "verdict"), [(4, Verdict.PASS), (8, Verdict.FAIL)])
def test_hidden_gpus_count_as_there(count, verdict):
    """Whether their model and paths are the expected ones is not known: SKIP."""
    text = f"gpus: {{count: {count}, models: {{Tesla P100-PCIE-16GB: 4}}}}\npairs: {{PIX: 6}}\n"
    expected = comparison.read(text, "site.yml")
    report = quick(SESSION, comparisons=[lambda report: comparison.evaluate(report, expected)])
    found = [f.verdict for f in report.findings if f.check == "expectations"]

    assert found == [verdict, Verdict.SKIP, Verdict.SKIP]


def test_a_session_that_may_not_reach_the_driver_is_partial_and_unknown():
    failure = NvmlFailure(call="nvmlInit", code=999, name="NVMLError_Unknown")
    host = replace(WHOLE, nvml=failure, device_files=(DeviceFile(name="nvidiactl", error="EPERM"), *FILES))
    report = quick(host)

    assert report.verdict is Verdict.UNKNOWN
    assert report.partial.usable == ()
    assert not [f for f in report.findings if f.verdict is Verdict.FAIL]
