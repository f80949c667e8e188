"""Conditions and labels of a Kubernetes node."""

import pytest

from gpucheck.model import Verdict
from gpucheck.render.machine.kubernetes import to_kubernetes
from tests.render.reports import finding, passed, report


def lines(*findings):
    return to_kubernetes(report(*findings, simulated=False)).splitlines()


def condition(found, name):
    return next(line for line in found if line.startswith(f"condition {name} ")).split(" ", 2)[2]


def test_a_failure_sets_the_condition_of_its_domain_only():
    found = lines(finding(action="reset-gpu", owner="node", gpu_index=2), passed())

    assert condition(found, "GpuNvlinkUnhealthy") == "True nvlink-down gpucheck:nvlink-down g2 17/18 reset-gpu"
    assert sum(" True " in line for line in found) == 1
    assert found[0] == "gpucheck.kubernetes/1 fail 9"
    assert found[-4:] == [
        "label gpucheck.io/verdict=fail",
        "label gpucheck.io/cause=nvlink-down",
        "label gpucheck.io/action=reset-gpu",
        "end",
    ]


@pytest.mark.parametrize(
    "fields",
    [{"verdict": Verdict.WARN}, {"owner": "user"}, {"action": "wait"}, {"cause": "leftover-environment"}],
    ids=["warning", "of-the-user", "waits", "cause-of-the-job"],
)
def test_what_needs_nothing_of_the_node_sets_no_condition(fields):
    found = lines(finding(**{"action": "change-setting", "owner": "node", **fields}))

    assert not [line for line in found if line.startswith("condition") and " True " in line]


def test_a_failure_without_a_cause_is_of_the_gpu():
    assert condition(lines(finding(cause=None, action="contact-support")), "GpuUnhealthy").startswith("True nvlink ")


def test_nothing_evaluated_is_unknown_everywhere():
    found = lines(finding(verdict=Verdict.UNKNOWN, cause=None))

    assert {line.split()[2] for line in found if line.startswith("condition")} == {"Unknown"}
