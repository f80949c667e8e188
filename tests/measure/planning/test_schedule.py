"""The number of rounds stays close to what the busiest resource requires, and a round shares no resource."""

from collections import Counter
from itertools import combinations, permutations

import pytest

from gpucheck import simulator
from gpucheck.host import live_source
from gpucheck.measure.planning.plan import (
    MANY_PAIRS,
    PAGE,
    CopyPaths,
    MeasurementRequest,
    flow_resources,
    pairs,
    paths,
    plan,
    ports_to_host,
    rounds,
)
from gpucheck.measure.values import MIB, Region
from gpucheck.model.copies import Flow
from gpucheck.model.device import Device
from gpucheck.simulator.machine import build as machine
from gpucheck.topology import build

# Rounds on the simulated machines whose pairs share paths: of ordered pairs if a GPU may send and receive in one round,
# of ordered pairs if it may not, of pairs with both directions. The first and last are what a search with Kempe chains,
# lower bounds and tabu moves needed, which first-fit replaced. Every other machine takes a tournament.
SEARCHED = {
    "a100-pcie-x8": (16, 18, 20),
    "dgx1-p100": (12, 17, 12),
    "dgx1-v100": (12, 17, 12),
    "l40s-x4": (4, 6, 5),
    "rtx-pro-6000-x8": (16, 18, 20),
    "rtx5090-x8": (16, 17, 16),
}


def one_way(count):
    order = list(permutations(range(count), 2))
    return order, [{f"out:{a}", f"in:{b}"} for a, b in order]


def both_ways(count):
    order = list(combinations(range(count), 2))
    return order, [{f"out:{a}", f"in:{b}", f"out:{b}", f"in:{a}"} for a, b in order]


def hold(items, schedule, pairs=None):
    """Every item once, no resource twice in a round; with pairs, no device twice either."""
    assert sorted(i for members in schedule for i in members) == list(range(len(items)))
    for members in schedule if pairs else ():
        ends = [end for i in members for end in pairs[i]]
        assert len(ends) == len(set(ends))
    for members in schedule:
        used = Counter(resource for i in members for resource in items[i])
        assert all(count == 1 for count in used.values())


PROFILES = map(simulator.load, simulator.profile_names())
SEVERAL = [profile.name for profile in PROFILES if len(machine(profile, profile.driver.state()).gpus) > 1]


@pytest.mark.parametrize("name", SEVERAL)
def test_no_machine_takes_more_rounds_than_a_search_needed(activate, name):
    activate(name)
    host = live_source(isolated=False, deadline_s=20)
    reading, pci = host.read("nvml").nvml, host.read("pci").pci
    between = paths(reading.gpus, pci, build(reading, pci, simulated=True))
    to_host = ports_to_host(reading.gpus, pci)
    count = len(reading.gpus)

    def resources(a, b):
        return flow_resources(Flow(src=a, dst=b), between, to_host)

    unidirectional, bidirectional = list(permutations(range(count), 2)), list(combinations(range(count), 2))
    counts = []
    one_direction = [resources(a, b) for a, b in unidirectional]
    both_directions = [resources(a, b) | resources(b, a) for a, b in bidirectional]
    for ends, items, ring in (
        (unidirectional, one_direction, True),
        (unidirectional, one_direction, False),
        (bidirectional, both_directions, False),
    ):
        schedule = rounds(items, ends, ring=ring)
        hold(items, schedule, None if ring else ends)
        counts.append(len(schedule))

    assert tuple(counts) == SEARCHED.get(name, (count - 1, 2 * (count - 1), count - 1))


@pytest.mark.parametrize(("count", "fewest"), [(8, 14), (72, 142)])
def test_ordered_pairs_through_nvswitch_take_one_tournament_each_way(count, fewest):
    order, items = one_way(count)
    schedule = rounds(items, order)

    hold(items, schedule, order)
    assert len(schedule) == fewest


@pytest.mark.parametrize("count", range(2, 17))
def test_all_pairs_through_a_switch_take_the_fewest_rounds_there_are(count):
    order, items = one_way(count)
    assert len(rounds(items, order, ring=True)) == count - 1
    order, items = both_ways(count)
    assert len(rounds(items, order)) == count - 1 + count % 2


def test_nothing_to_measure_needs_no_round():
    assert rounds([], []) == ()


METHODS = ("ce-write", "ce-read", "staged")


def integrity(count, depth):
    devices = tuple(Device(index=n, name="GPU") for n in range(count))
    machine = CopyPaths(devices=devices, to_host=((),) * count)
    steps = plan(machine, MeasurementRequest(depth=depth, methods=METHODS))
    return machine, [step for step in steps if step.purpose == "integrity"]


@pytest.mark.parametrize(("count", "depth", "each"), [(8, "quick", 2), (72, "quick", 1), (40, "default", 2)])
def test_each_pair_is_compared_by_each_method_or_by_one_in_turn(count, depth, each):
    machine, steps = integrity(count, depth)
    checked = [(step.flows[0].src, step.flows[0].dst) for step in steps]

    assert set(checked) == set(pairs(machine))
    assert len(checked) == each * len(pairs(machine))
    assert {step.flows[0].method for step in steps} == {"ce-write", "ce-read"}
    assert (each == 1) == (depth == "quick" and len(pairs(machine)) > MANY_PAIRS)


def test_the_same_bytes_of_a_buffer_are_compared():
    few, many = (sum(region.size for region in integrity(count, "quick")[1][0].regions) for count in (8, 72))

    assert few == many


def planned(count=2, **request):
    devices = tuple(Device(index=n, name="GPU") for n in range(count))
    machine = CopyPaths(devices=devices, to_host=((),) * count)
    return plan(machine, MeasurementRequest(methods=("ce-write", "staged", "fabric"), **request))


@pytest.mark.parametrize(("depth", "most"), [("quick", 64 * MIB), ("default", 256 * MIB - PAGE)])
def test_the_load_of_a_data_check_is_one_long_copy_so_that_all_of_it_is_compared(depth, most):
    regions = {step.regions for step in planned(depth=depth) if step.purpose == "integrity under load"}

    assert regions == {(Region(offset=0, size=most),)}


@pytest.mark.parametrize(
    ("fabric", "copies"), [((), []), ((1,), []), ((0, 1), [(0, 1), (1, 0)]), ((0, 2, 3), [(0, 2), (2, 3), (3, 0)])]
)
def test_each_gpu_of_a_rack_shares_memory_with_the_next_after_everything_else(fabric, copies):
    *before, last = planned(4, fabric=fabric)

    assert [(flow.src, flow.dst) for flow in last.flows if flow.method == "fabric"] == copies
    assert not [step for step in before if any(flow.method == "fabric" for flow in step.flows)]
