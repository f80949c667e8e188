"""The links between two GPUs: the narrowest sets the expectation, a reduced one is named once."""

import msgspec
import pytest
from hypothesis import given

from gpucheck.model import NvLink, PcieLink
from gpucheck.topology import build
from gpucheck.topology.wiring import Paths, wire
from tests.machines import GEN5_X16, on_bus, p100, reading
from tests.topology.servers import ZEN4, narrowed, server, topology
from tests.topology.strategies import machines

NARROW = PcieLink(generation=5, width=8, max_generation=5, max_width=8)
LOST_LANES = narrowed(GEN5_X16, width=4)
LOST_SPEED = narrowed(GEN5_X16, generation=2)


def pair(made, a, b):
    return next(pair for pair in made.pairs if (pair.a, pair.b) == (a, b))


def test_only_links_on_the_way_count():
    """Two GPUs below one switch do not use its uplink."""
    made = topology(uplink={1: NARROW})

    assert pair(made, 4, 5).expected == pair(made, 0, 1).expected
    assert pair(made, 4, 5).narrowest is None
    assert pair(made, 0, 4).narrowest in ("0000:21:00.0", "0000:01:01.0")
    assert pair(made, 0, 4).expected.high_gb_s == 31.5


@pytest.mark.parametrize("link", [LOST_LANES, LOST_SPEED])
def test_a_reduced_uplink_is_named_once_at_the_switch(link):
    """Its root port shows the same link and is not named a second time."""
    made = topology(uplink={1: link})

    assert pair(made, 0, 4).reduced == ("0000:21:00.0",)
    assert pair(made, 4, 5).reduced == ()


def test_what_a_reduced_link_should_reach_is_what_it_should_be():
    """The expectation is the yardstick: it does not sink with the fault that it is to show."""
    assert pair(topology(uplink={1: LOST_LANES}), 0, 4).expected == pair(topology(), 0, 4).expected


def test_a_gpu_that_lost_lanes_is_reduced_and_one_that_sleeps_is_not():
    nvml, pci = server(2, 2)
    slow, asleep = (
        msgspec.structs.replace(gpu, pcie=narrowed(GEN5_X16, **now))
        for gpu, now in zip(nvml.gpus, ({"width": 8}, {"generation": 1}), strict=True)
    )
    made = build(msgspec.structs.replace(nvml, gpus=(slow, asleep)), pci, False, cpu=ZEN4)

    assert made.pairs[0].reduced == (slow.pci_bus_id,)


def test_a_bridge_that_nobody_could_read_is_drawn_and_not_guessed():
    """Its place in the chain tells what it is, nothing tells its link."""
    gpus = p100(0), p100(1)
    wiring = wire(gpus, (), {d.bus_id: d for d in on_bus(*gpus)}, None)
    kinds = {function.bus_id: function.kind for function in wiring.functions}

    assert kinds["0000:00:01.0"] == "root-port"
    assert kinds["0000:01:00.0"] == "switch-upstream"
    assert kinds["0000:02:00.0"] == "switch-downstream"
    assert [hop.bus_id for hop in Paths(wiring).between("GPU0", "GPU1")] == ["0000:03:00.0", "0000:04:00.0"]


def test_a_node_that_only_nvml_tells_holds_the_whole_chain():
    """Desktop firmware leaves numa_node at -1 in sysfs."""
    nvml, pci = server(4, 2)
    gpus_only = (d for d in pci if not d.is_network_card)
    wiring = build(nvml, tuple(msgspec.structs.replace(d, numa_node=None) for d in gpus_only), False).wiring

    assert wiring is not None
    assert {f.numa_node for f in wiring.functions} == {0, 1}


def test_bundles_name_both_ends_of_direct_links_and_the_switch_of_others():
    a, b = p100(0), p100(1)
    cable = NvLink(link=0, active=True, remote_kind="gpu", remote_bus_id=b.pci_bus_id)
    back = msgspec.structs.replace(cable, remote_bus_id=a.pci_bus_id.upper())
    hidden = NvLink(link=1, active=True, remote_kind="switch")
    down = NvLink(link=2, active=False, remote_kind="gpu", remote_bus_id=b.pci_bus_id)
    gpus = (msgspec.structs.replace(a, nvlinks=(cable, hidden, down)), msgspec.structs.replace(b, nvlinks=(back,)))
    made = build(reading(*gpus), on_bus(*gpus), False)
    assert made.wiring is not None

    assert {(x.a, x.b, x.links) for x in made.wiring.nvlinks} == {("GPU0", "GPU1", 1), ("GPU0", "nvswitch", 1)}


@given(machines())
def test_every_function_of_any_machine_hangs_below_one_that_stands_before_it(machine):
    nvml, pci = machine
    wiring = build(nvml, pci, False).wiring or pytest.fail("no wiring")
    seen: set[str] = set()
    for f in wiring.functions:
        assert f.above is None or f.above in seen
        seen.add(f.bus_id)
    assert sum(f.kind == "gpu" for f in wiring.functions) == len(nvml.gpus)
