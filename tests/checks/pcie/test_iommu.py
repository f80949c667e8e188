"""The IOMMU: absent, identity or translating."""

import msgspec
import pytest

from gpucheck.checks.pcie import acs, bar1, iommu, link, path
from gpucheck.render.findings import group_equal
from tests.checks.judging import PASS, SKIP, UNKNOWN, WARN, judge
from tests.checks.pcie.trees import host, tree
from tests.fakes import facts
from tests.machines import h100, reading

NARROW = msgspec.structs.replace(h100(0).pcie, width=8)
NO_GROUP = {"iommu_group": None, "iommu_type": None}


@pytest.mark.parametrize(
    ("group", "virtual", "verdict"),
    [
        ({"iommu_type": "DMA"}, None, WARN),
        ({"iommu_type": "DMA-FQ"}, None, WARN),
        ({"iommu_type": "identity"}, None, PASS),
        ({"iommu_type": "DMA"}, "kvm", SKIP),
        ({"iommu_type": None}, None, UNKNOWN),
        (NO_GROUP, None, PASS),
    ],
)
def test_translating_iommu_is_a_fault_on_bare_metal(group, virtual, verdict):
    """A virtual machine does not show the IOMMU of its host."""
    (finding,) = judge(iommu, host(tree(gpu0=group, gpu1=group), virtual=virtual))

    assert (finding.verdict, finding.cause) == (verdict, "iommu-translation" if verdict is WARN else None)


def test_a_virtual_machine_says_once_what_its_host_hides():
    guest = host(tree(), virtual="kvm")
    skipped = [finding for check in (path, acs, iommu) for finding in judge(check, guest)]
    narrow = msgspec.structs.replace(h100(0), pcie=NARROW, bar1_bytes=256 << 20)
    narrow = facts(nvml=reading(narrow), system=guest.system)
    skipped += [finding for check in (link, bar1) for finding in judge(check, narrow)]
    (group,) = group_equal(skipped)

    assert group.checks == ("pcie-path", "acs", "iommu", "pcie-link", "bar1")
    assert "the host of this kvm virtual machine" in group.seen


def test_translating_iommu_of_a_power_host_is_no_fault():
    translating = {"iommu_type": "DMA"}
    (finding,) = judge(iommu, host(tree(gpu0=translating, gpu1=translating), arch="ppc64le"))

    assert (finding.verdict, finding.code) == (SKIP, "pcie.iommu-by-design")


def test_iommu_type_of_one_gpu_that_cannot_be_read_is_unknown():
    """The other one's identity does not speak for it."""
    (finding,) = judge(iommu, host(tree(gpu1={"iommu_type": None})))

    assert (finding.verdict, finding.values) == (UNKNOWN, {"unread": 1, "gpus": 2})
