"""Steps of a plan: what each copies, and when."""

import pytest

from gpucheck.measure.planning.plan import PAGE, CopyPaths, MeasurementRequest, plan
from gpucheck.measure.values import MIB, Region
from gpucheck.model.device import Device


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
