"""What a report stores of GPUs: a view of the facts, read back as facts."""

import json

import pytest
from msgspec.structs import replace

from gpucheck.model import Gpu, NvLink
from gpucheck.model.record import RECORD, UPTIME, facts_of, stored
from tests.machines import h100, on_bus, p100, whole_host

GPUS = (h100(0), replace(h100(1), nvlinks=(NvLink(link=3, active=False, crc_errors=7),)))


def read_back(kept):
    found = facts_of(json.loads(json.dumps({RECORD: kept})))
    assert found is not None
    return found


def test_stored_facts_are_read_back_as_facts():
    found = read_back(stored(whole_host(*GPUS), 12.3456))

    for gpu, was in zip(found.gpus, GPUS, strict=True):
        assert (gpu.pci_bus_id, gpu.uuid, gpu.name, gpu.device_id) == (
            was.pci_bus_id,
            was.uuid,
            was.name,
            was.device_id,
        )
        assert (gpu.memory_bytes, gpu.pcie, gpu.active_nvlinks) == (was.memory_bytes, was.pcie, was.active_nvlinks)
        for name in ("ecc_counts", "pcie_errors", "row_remap", "retired_pages", "power_limit_w", "processes", "ecc"):
            assert getattr(gpu.health, name) == getattr(was.health, name)
    assert found.gpus[1].nvlinks == GPUS[1].nvlinks
    assert found.driver.loaded_flavour == "proprietary"
    assert [(port.bus_id, port.link) for port in found.pci] == [(one.bus_id, one.link) for one in on_bus(*GPUS)]
    assert float(found.texts[UPTIME]) == pytest.approx(12.346 * 3600)


def test_a_row_of_an_earlier_report_is_read():
    row = {"bus_id": "0000:03:00.0", "uuid": "GPU-0", "name": "Tesla P100-PCIE-16GB", "device_id": "15f8"}
    row |= {"memory_mib": 16384, "memory_used_mib": 3, "ecc_errors": {"aggregate_corrected": 2}, "nvlinks": [[0, True]]}
    (gpu,) = read_back({"gpus": [row], "ports": [{"bus_id": "0000:00:01.0"}]}).gpus

    assert isinstance(gpu, Gpu)
    assert (gpu.memory_mib, gpu.health.memory_used_mib) == (p100(0).memory_mib, 3)
    assert gpu.health.ecc_counts.aggregate_corrected == 2
    assert gpu.nvlinks == (NvLink(link=0, active=True),)


@pytest.mark.parametrize(
    "kept",
    [
        3,
        {"gpus": 3},
        {"gpus": [{"bus_id": "0000:03:00.0"}]},
        {"gpus": [{"memory_mib": "much"}]},
        {"gpus": [{"nvlinks": [3]}]},
        {"ports": [{}]},
        {"uptime_hours": "long"},
    ],
)
def test_another_form_is_no_facts(kept):
    assert facts_of({RECORD: kept}) is None


def test_an_older_report_has_no_facts():
    assert facts_of({}) is None
