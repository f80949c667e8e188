"""The IOMMU: absent, identity or translating."""

from dataclasses import replace

import msgspec
import pytest

from gpucheck.checks.pcie import iommu
from tests.checks.judging import PASS, SKIP, UNKNOWN, WARN, judge
from tests.checks.pcie.trees import host, tree
from tests.fakes import SYSTEM

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


def test_translating_iommu_of_a_power_host_is_no_fault():
    power = msgspec.structs.replace(SYSTEM, arch="ppc64le")
    translating = {"iommu_type": "DMA"}
    on_power = replace(host(tree(gpu0=translating, gpu1=translating)), system_=power)
    (finding,) = judge(iommu, on_power)

    assert finding.verdict is SKIP
    assert "POWER" in finding.why


def test_iommu_type_of_one_gpu_that_cannot_be_read_is_unknown():
    """The other one's identity does not speak for it."""
    (finding,) = judge(iommu, host(tree(gpu1={"iommu_type": None})))

    assert finding.verdict is UNKNOWN
    assert "1 of 2 GPUs" in finding.why
