"""What a report stores of GPUs: a view of the facts, read back as facts."""

import json

import msgspec
import pytest
from msgspec.structs import replace

from gpucheck.model import Gpu, Limits, NotRecorded, NvLink, PackageVersion
from gpucheck.model.facts import Facts
from gpucheck.model.measurements import metric_title
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


ASKED = Facts(
    limits=Limits(),
    packages={"imex": None, "driver": PackageVersion(name="driver", version="580")},
    texts={"/proc/cmdline": None},
    library_names=("libcudart",),
)


@pytest.mark.parametrize(
    ("needs", "missing"),
    [
        (("limits", "package:imex", "package:driver", "text:/proc/cmdline", "library:libcudart"), []),
        (("nvml", "simulation"), ["nvml", "simulation"]),
        (("package:other", "text:/etc/x", "library:libnccl"), ["package:other", "text:/etc/x", "library:libnccl"]),
        (("folder:/dev", "service:a", "python:torch"), ["folder:/dev", "service:a", "python:torch"]),
    ],
)
def test_an_answer_that_something_is_not_there_is_an_answer(needs, missing):
    assert ASKED.missing(needs) == missing


def test_a_database_that_cannot_be_read_is_an_answer_about_every_package():
    unreadable = Facts(packages=None)

    assert unreadable.missing(["package:imex"]) == []
    assert unreadable.installed(["imex"]) == ()


@pytest.mark.parametrize(("need", "words"), [("nvml", "contain nvml"), ("text:/x", "file /x"), ("python:a", "Python")])
def test_what_was_not_asked_is_named(need, words):
    with pytest.raises(NotRecorded, match=words):
        ASKED.read("limits", need)


def test_json_keeps_what_was_asked_apart_from_what_was_not():
    again = msgspec.json.decode(msgspec.json.encode(ASKED), type=Facts)

    assert again == ASKED
    assert again.missing(["limits", "nvml"]) == ["nvml"]


@pytest.mark.parametrize(
    ("key", "title"),
    [
        ("p2p.matrices.p2p_uni_gb_s[NV18]", "p2p matrices p2p uni [NV18] (GB/s)"),
        ("finding.bar1.mib", "bar1 (MiB)"),
        ("finding.clock-limit.mhz", "clock-limit (MHz)"),
        ("finding.processes.processes", "processes"),
        ("finding.nvlink.links", "nvlink (links)"),
        ("smoke-ddp.performance.samples_per_s", "smoke-ddp performance samples (per s)"),
        ("p2p.latency_us[PIX]", "p2p latency [PIX] (us)"),
        ("odd", "odd"),
    ],
)
def test_a_metric_is_titled_with_its_unit(key, title):
    assert metric_title(key) == title
