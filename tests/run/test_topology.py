"""The topology of a host with the findings about its driver and missing GPUs."""

import msgspec
import pytest

from gpucheck.model import NvmlFailure, PciDevice, PcieLink, Verdict
from gpucheck.run.topology import examine
from gpucheck.topology import of
from tests.fakes import SYSTEM, facts
from tests.machines import on_bus, p100, reading

P100S = (p100(0), p100(1))
NOT_LOADED = NvmlFailure(call="nvmlInit_v2", code=9, name="NVML_ERROR_DRIVER_NOT_LOADED")
INTEL = {"/proc/cpuinfo": "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 79\n"}
NARROW = PcieLink(generation=3, width=8, max_generation=3, max_width=16)
NIC = PciDevice(
    bus_id="0000:0a:00.0", vendor_id="15b3", device_id="1017", class_id="020700", infiniband_names=("mlx5_0",)
)


@pytest.mark.parametrize(("virtual", "found"), [(None, [("pcie-link", Verdict.FAIL)] * 2), ("kvm", [])])
def test_links_of_a_host_are_reported_as_their_checks_report_them(virtual, found):
    system = msgspec.structs.replace(SYSTEM, virtual=virtual)
    gpus = [msgspec.structs.replace(gpu, pcie=NARROW) for gpu in P100S]
    host = facts(system=system, nvml=reading(*gpus, ancestor="PHB"), pci=on_bus(*gpus), files=INTEL)

    topology = examine(host)

    assert "x 0.68 (PHB)" in topology.pairs[0].expected.basis
    assert [(f.check, f.verdict) for f in topology.findings if f.check != "topology"] == found
    assert of(host).pairs == topology.pairs


def test_host_without_nvml_has_no_topology():
    host = facts(nvml=NOT_LOADED, pci=on_bus(*P100S))

    assert of(host) is None
    found = examine(host)
    assert (found.gpus, found.matrix) == ((), ())
    assert [(f.check, f.cause) for f in found.findings] == [("driver", "driver-not-loaded")]


def test_host_without_gpus_lists_no_network_cards():
    found = examine(facts(nvml=reading(), pci=(NIC,)))

    assert (found.gpus, found.nics, found.wiring) == ((), (), None)
    assert [f.check for f in found.findings] == ["inventory"]
