"""Whole nvidia-smi -q -x of healthy real machines accuses nobody; one value changed in it is found on its GPU."""

import pytest

from gpucheck.model import Verdict
from tests.captures import NAMES, gpus, text
from tests.imports.pastes.reading import accused, diagnosed
from tests.shared import sampled

# Element as the driver wrote it -> as it is with the fault, the cause, and the verdict.
FAULTS = {
    "power brake": (
        "<clocks_event_reason_hw_power_brake_slowdown>Not Active<",
        "<clocks_event_reason_hw_power_brake_slowdown>Active<",
        "throttled",
    ),
    "thermal slowdown": (
        "<clocks_event_reason_hw_thermal_slowdown>Not Active<",
        "<clocks_event_reason_hw_thermal_slowdown>Active<",
        "throttled",
    ),
    "thermal slowdown before": (
        "<clocks_event_reasons_counters_hw_therm_slowdown>0 us<",
        "<clocks_event_reasons_counters_hw_therm_slowdown>3600000000 us<",
        "throttled",
    ),
    "compute mode": ("<compute_mode>Default<", "<compute_mode>Prohibited<", "compute-mode-exclusive"),
    "MIG": (
        "<current_mig>Disabled</current_mig>\n\t\t\t<pending_mig>Disabled<",
        "<current_mig>Disabled</current_mig>\n\t\t\t<pending_mig>Enabled<",
        "mig-enabled",
    ),
    "DRAM": ("<dram_uncorrectable>0<", "<dram_uncorrectable>3<", "ecc-uncorrected"),
    "row remapping": ("<remapped_row_failure>No<", "<remapped_row_failure>Yes<", "row-remap"),
    "page retirement": ("<pending_retirement>No<", "<pending_retirement>Yes<", "row-remap"),
    "fabric": ("<state>Completed<", "<state>In Progress<", None),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_healthy_capture_is_read_whole_and_passes(name):
    found = diagnosed(text(name))

    assert not found.unread
    assert {one.verdict for one in found.findings} == {Verdict.PASS}
    assert found.verdict is Verdict.PASS
    assert len(found.observations.gpus) == len(gpus(name))
    for seen, gpu in zip(found.observations.gpus, gpus(name), strict=True):
        assert seen.model == gpu.findtext("product_name")
        assert seen.bus_id == gpu.get("id", "")[4:].lower()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", sampled(NAMES, lambda number, _: number % 3 == 0))
def test_a_changed_value_is_found_on_its_gpu(name, fault):
    before, after, cause = FAULTS[fault]
    head, gpu, tail = text(name).rpartition("<gpu id=")
    if before not in tail:
        pytest.skip("this GPU does not report it")

    found = diagnosed(head + gpu + tail.replace(before, after, 1))

    assert not found.unread
    assert cause in accused(found)
