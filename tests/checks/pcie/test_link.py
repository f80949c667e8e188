"""The width of a GPU's own PCIe link."""

import msgspec
import pytest

from gpucheck.checks.pcie import link
from tests.checks.judging import FAIL, PASS, SKIP, judge
from tests.fakes import SYSTEM, facts
from tests.machines import p100, reading


def trained(index, **fields):
    """A P100 whose link has these fields."""
    gpu = p100(index)
    return msgspec.structs.replace(gpu, pcie=msgspec.structs.replace(gpu.pcie, **fields))


@pytest.mark.parametrize(("virtual", "verdict"), [(None, FAIL), ("kvm", SKIP)])
def test_card_below_its_own_width_fails_on_bare_metal_only(virtual, verdict):
    """In a cloud machine x8 of x16 is by design, and the guest does not see the slot."""
    system = msgspec.structs.replace(SYSTEM, virtual=virtual)
    healthy, finding = judge(link, facts(nvml=reading(p100(0), trained(1, width=8)), system=system))

    assert healthy.verdict is PASS
    assert (finding.verdict, finding.subject) == (verdict, "gpu:0000:04:00.0")
    if virtual is None:
        assert (finding.seen, finding.wanted, finding.unit) == (8, 16, "lanes")
    assert finding.evidence[0] == "current Gen3 x8"


def test_idle_card_at_generation_1_is_healthy():
    """Cards lower the generation when idle; it means something only while copying."""
    assert judge(link, facts(nvml=reading(trained(0, generation=1))))[0].verdict is PASS
