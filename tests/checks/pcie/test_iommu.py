"""The IOMMU: absent, identity or translating."""

import pytest

from gpucheck.checks.pcie import iommu
from tests.checks.judging import PASS, SKIP, UNKNOWN, WARN, judge
from tests.checks.pcie.trees import host, tree


@pytest.mark.parametrize(
    ("kind", "virtual", "verdict"),
    [
        ("DMA", None, WARN),
        ("DMA-FQ", None, WARN),
        ("identity", None, PASS),
        ("DMA", "kvm", SKIP),
        (None, None, UNKNOWN),
    ],
)
def test_a_translating_iommu_is_a_fault_on_bare_metal(kind, virtual, verdict):
    """In a virtual machine it is not ours to see."""
    (finding,) = judge(iommu, host(tree(gpu0={"iommu_type": kind}, gpu1={"iommu_type": kind}), virtual=virtual))

    assert (finding.verdict, finding.cause) == (verdict, "iommu-translation" if verdict is WARN else None)


def test_no_iommu_at_all_passes():
    """No group, nothing that translates."""
    none = {"iommu_group": None, "iommu_type": None}
    (finding,) = judge(iommu, host(tree(gpu0=none, gpu1=none)))

    assert finding.verdict is PASS


def test_iommu_type_of_one_gpu_that_cannot_be_read_is_unknown():
    """The other one's identity does not speak for it."""
    (finding,) = judge(iommu, host(tree(gpu1={"iommu_type": None})))

    assert finding.verdict is UNKNOWN
    assert "1 of 2 GPUs" in finding.why
