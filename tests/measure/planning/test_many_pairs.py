"""A quick run of many GPUs compares the data of each pair once, and states it."""

import pytest

from gpucheck.measure.planning.plan import MANY_PAIRS, CopyPaths, MeasurementRequest, pairs, plan
from gpucheck.model.device import Device

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
