"""The width of a GPU's own PCIe link."""

import msgspec
import pytest

from gpucheck.checks.pcie import link
from gpucheck.model import PciDevice, PcieLink
from tests.checks.judging import FAIL, PASS, SKIP, UNKNOWN, WARN, judge
from tests.fakes import SYSTEM, facts
from tests.machines import on_bus, p100, reading


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


@pytest.mark.parametrize(("width", "verdict"), [(8, FAIL), (16, UNKNOWN)])
def test_lanes_by_sysfs_count_where_nvml_reports_none_and_pass_nothing(width, verdict):
    gpu = msgspec.structs.replace(p100(0), pcie=PcieLink())
    (device,) = on_bus(gpu)
    device = msgspec.structs.replace(device, link=PcieLink(width=width, max_width=16))

    assert judge(link, facts(nvml=reading(gpu), pci=(device,)))[0].verdict is verdict


@pytest.mark.parametrize(
    ("virtual", "found"), [(None, [(WARN, "nic:0000:05:00.0", "Gen4 x8", "Gen4 x16")]), ("kvm", [])]
)
def test_card_of_rdma_below_its_own_width_is_reported_on_bare_metal_only(virtual, found):
    card = PciDevice(
        bus_id="0000:05:00.0",
        vendor_id="15b3",
        device_id="1017",
        class_id="020700",
        infiniband_names=("mlx5_0", "mlx5_1"),
        link=PcieLink(generation=4, width=8, max_generation=4, max_width=16),
    )
    system = msgspec.structs.replace(SYSTEM, virtual=virtual)
    findings = judge(link, facts(nvml=reading(p100(0)), pci=(*on_bus(p100(0)), card), system=system))

    assert [(f.verdict, f.subject, f.seen, f.wanted) for f in findings if f.subject.startswith("nic:")] == found
