"""PCIe links between a GPU and the CPU; a healthy tree gets no complaint from any check."""

import msgspec
import pytest

from gpucheck.checks.pcie import acs, iommu, numa
from gpucheck.checks.pcie import errors as pcie_errors
from gpucheck.checks.pcie import path as pcie_path
from gpucheck.model import PcieLink
from tests.checks.judging import FAIL, PASS, UNKNOWN, judge
from tests.checks.pcie.trees import GEN4, ROOT, UP, host, tree


@pytest.mark.parametrize("check", [acs, iommu, numa, pcie_errors, pcie_path], ids=lambda c: c.NAME)
def test_a_healthy_tree_gets_no_complaint(check):
    """Two GPUs below one switch."""
    found = judge(check, host(tree()))

    assert {finding.verdict for finding in found} == {PASS}


NARROW = PcieLink(generation=2, width=16, max_generation=4, max_width=16)


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        ({"root": {"link": NARROW}, "up": {"link": NARROW}}, f"link:{ROOT}"),
        ({"up": {"link": NARROW}}, f"link:{UP}"),
        ({"root": {"link": msgspec.structs.replace(GEN4, width=8)}}, f"link:{ROOT}"),
    ],
)
def test_a_reduced_uplink_is_named_once_with_the_gpus_behind_it(changes, subject):
    """A link has two ends; both may tell of it."""
    (finding,) = judge(pcie_path, host(tree(**changes)))

    assert (finding.verdict, finding.cause, finding.subject) == (FAIL, "uplink-downgraded", subject)
    assert "0000:03:00.0, 0000:04:00.0" in finding.evidence[1]


def test_the_gpus_own_idle_link_is_left_to_its_own_check():
    """An idle card lowers its speed, and the port above it shows the same link."""
    slow = {"link": msgspec.structs.replace(GEN4, generation=1)}
    (finding,) = judge(pcie_path, host(tree(gpu0=slow, down0=slow)))

    assert finding.verdict is PASS


@pytest.mark.parametrize(
    "link", [PcieLink(), PcieLink(generation=4, width=16), PcieLink(max_generation=4, max_width=16)]
)
def test_uplink_without_a_reported_state_is_unknown(link):
    """One link that sysfs does not report is not at full speed because the others are."""
    (finding,) = judge(pcie_path, host(tree(up={"link": link})))

    assert (finding.verdict, finding.values) == (UNKNOWN, {"unknown": 1, "links": 2})
