"""The IOMMU: absent, identity or translating."""

import msgspec
import pytest

from gpucheck.checks.pcie import acs, bar1, iommu, link, path
from gpucheck.render.findings import group_equal
from tests.checks.judging import codes, judge
from tests.checks.pcie.trees import host, tree
from tests.fakes import facts
from tests.machines import h100, reading

NARROW = msgspec.structs.replace(h100(0).pcie, width=8)
NO_GROUP = {"iommu_group": None, "iommu_type": None}


@pytest.mark.parametrize(
    ("group", "system", "code"),
    [
        ({"iommu_type": "DMA"}, {}, "pcie.iommu-translates"),
        ({"iommu_type": "DMA-FQ"}, {}, "pcie.iommu-translates"),
        ({"iommu_type": "identity"}, {}, None),
        ({"iommu_type": "DMA"}, {"virtual": "kvm"}, "nvml.set-by-the-host"),
        ({"iommu_type": "DMA"}, {"arch": "ppc64le"}, "pcie.iommu-by-design"),
        ({"iommu_type": None}, {}, "pcie.iommu-type-unknown"),
        (NO_GROUP, {}, None),
    ],
)
def test_type_of_the_iommu(group, system, code):
    assert codes(iommu, host(tree(gpu0=group, gpu1=group), **system)) == [code]


def test_a_virtual_machine_says_once_what_its_host_hides():
    guest = host(tree(), virtual="kvm")
    skipped = [finding for check in (path, acs, iommu) for finding in judge(check, guest)]
    narrow = msgspec.structs.replace(h100(0), pcie=NARROW, bar1_bytes=256 << 20)
    narrow = facts(nvml=reading(narrow), system=guest.system)
    skipped += [finding for check in (link, bar1) for finding in judge(check, narrow)]
    (group,) = group_equal(skipped)

    assert group.checks == ("pcie-path", "acs", "iommu", "pcie-link", "bar1")
    assert "the host of this kvm virtual machine" in group.seen


def test_iommu_type_of_one_gpu_that_cannot_be_read_is_unknown():
    """The other one's identity does not speak for it."""
    assert codes(iommu, host(tree(gpu1={"iommu_type": None}))) == ["pcie.iommu-type-unknown"]
