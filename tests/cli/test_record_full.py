"""record --full: CUDA's answers, copies and timings in one redacted file, and a replay that evaluates them again."""

import gzip
import json

import pytest

from tests.cli.test_record import _own_cache  # noqa: F401 - a fixture

SLOW = "p2p-slow:pair=0-1,percent=40"
PAIR = "p100-pcie-x2"


def full_record(run, path, *options):
    status, out, err = run("record", "--full", *options, "-o", path)
    assert (status, out) == (0, ""), err
    return json.loads(gzip.decompress(path.read_bytes())), err


@pytest.fixture
def elsewhere(monkeypatch):
    """A host on which no machine is simulated any more."""
    return lambda: monkeypatch.setenv("GPUCHECK_SIMULATOR", "")


def copies(report):
    """What the copies came to, by name; not the times."""
    found = json.loads(report)
    return [
        (f["check"], f["subject"], f["verdict"], f["cause"], f["seen"])
        for f in found["findings"]
        if f["check"].startswith(("p2p-", "host-copies", "links-under"))
    ]


def test_a_replay_evaluates_the_recorded_copies_as_the_host_does(run, tmp_path, elsewhere):
    recorded, _ = full_record(run, tmp_path / "r", "--simulate", PAIR, "--fault", SLOW)
    live = run("verify", "--only", "p2p", "--format", "json", "--simulate", PAIR, "--fault", SLOW)
    elsewhere()
    replayed = run("verify", "--only", "p2p", "--format", "json", "--from", tmp_path / "r")

    verdicts = {(check, cause): verdict for check, _, verdict, cause, _ in copies(replayed[1])}
    assert replayed[0] == live[0]
    assert {(c, cause): v for c, _, v, cause, _ in copies(live[1])} == verdicts
    assert {"fail", "warn"} & set(verdicts.values())
    assert recorded["full"]["bandwidth"]["findings"] == [], "the verdict is made when the recording is replayed"


def test_it_holds_cudas_answers_the_timings_and_how_long_each_part_took(run, tmp_path, monkeypatch):
    monkeypatch.setenv("GPUCHECK_CUDA_WITHOUT", "cuMemGetInfo")
    recorded, err = full_record(run, tmp_path / "r", "--simulate", PAIR)
    full = recorded["full"]
    cuda = full["cuda"]
    first = cuda["devices"][0]

    assert (cuda["type"], cuda["driver"], cuda["can_access"]) == ("reading", "13.0", [[None, 1], [1, None]])
    assert first["attributes"]["MULTIPROCESSOR_COUNT"] == 56
    assert len(first["attributes"]) > 100
    assert cuda["p2p"]["ACCESS_SUPPORTED"] == [[None, 1], [1, None]]
    assert first["free_bytes"] is None
    assert [(gap["call"], gap["code"]) for gap in cuda["gaps"]] == [("cuMemGetInfo", None)] * 2
    assert {"import", "cuInit", "context 0", "kernels 1"} <= set(cuda["seconds"])
    methods = {(one["purpose"], one["method"]) for one in full["timings"]}
    assert {("one direction", "ce-write"), ("latency", "ce-write")} <= methods
    assert {"sm-read", "sm-write", "ce-read", "staged"} <= {method for _, method in methods}
    assert all(0 < one["min_s"] <= one["median_s"] <= one["max_s"] for one in full["timings"])
    assert set(full["seconds"]) == {"parameters", "cuda", "copies"}
    assert "/sys/module/nvidia/parameters" in recorded["folders"]
    assert "not recorded" not in err


def test_names_are_the_same_in_every_part_and_nothing_identifies_the_host(run, tmp_path):
    recorded, _ = full_record(run, tmp_path / "r", "--simulate", PAIR)
    full = recorded["full"]
    uuids = [gpu["uuid"] for gpu in recorded["nvml"]["gpus"]]

    assert [device["uuid"] for device in full["cuda"]["devices"]] == uuids
    assert [device["uuid"] for device in full["bandwidth"]["devices"]] == uuids
    assert full["bandwidth"]["host"] == recorded["system"]["hostname"] != "vm"
    assert full["cuda"]["devices"][0]["bus_id"] == recorded["nvml"]["gpus"][0]["pci_bus_id"].upper()


def test_what_cannot_be_measured_is_recorded_with_its_reason(run, tmp_path, elsewhere):
    recorded, err = full_record(run, tmp_path / "r", "--simulate", "a100-mig-x8")
    elsewhere()
    _, out, _ = run("verify", "--only", "p2p", "--format", "json", "--from", tmp_path / "r")
    (finding,) = (f for f in json.loads(out)["findings"] if f["check"] == "p2p")

    assert recorded["full"]["bandwidth"] is None
    assert "MIG" in recorded["full"]["not_measured"]
    assert "Copies were not recorded: " in err
    assert "MIG" in finding["seen"]


def test_a_host_without_libcuda_records_why(run, tmp_path, monkeypatch):
    monkeypatch.setattr("gpucheck.measure.engines.driver.reading.preload", lambda name: None)
    recorded, err = full_record(run, tmp_path / "r")
    full = recorded["full"]

    assert full["cuda"]["type"] == "failure"
    assert "libcuda.so.1 was not found" in full["cuda"]["why"]
    assert "nvidia-driver-cuda" in full["cuda"]["fix"]
    assert full["bandwidth"] is None
    assert "no GPU to measure" in full["not_measured"]
    assert "CUDA was not recorded: the CUDA driver library libcuda.so.1 was not found" in err


def test_a_recording_without_full_still_copies_nothing(run, tmp_path, elsewhere):
    run("record", "--simulate", PAIR, "-o", tmp_path / "r")
    elsewhere()
    _, out, _ = run("verify", "--only", "p2p", "--format", "json", "--from", tmp_path / "r")

    assert [(f["verdict"], f["seen"]) for f in json.loads(out)["findings"]] == [("skip", "a recording")]
