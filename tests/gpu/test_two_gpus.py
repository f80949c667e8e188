"""Two GPUs: peer access against NVML, on against off, against nvbandwidth where it is installed, and collectives."""

import json
import shutil
import subprocess
import sys

import pytest

from gpucheck.measure.running.child import execute, verify
from gpucheck.measure.values import CopyStep, Region
from gpucheck.model.copies import Flow

pytestmark = pytest.mark.gpu

MIB = 1 << 20
SIZE = 256 * MIB
METHODS = ("ce-write", "ce-read", "sm-write", "sm-read", "staged")
WITHIN = 0.05
NVLINK_GAIN = 2.0  # of NVLink over host memory, on the slowest NVLink there is


@pytest.fixture(autouse=True)
def two(devices):
    if len(devices) < 2:
        pytest.skip(f"this host has {len(devices)} GPU")


def bandwidth(engine, *flows):
    step = CopyStep(operation="bandwidth", purpose="x", flows=flows, size=SIZE, samples=(15, 41))
    return [timing.gb_s for timing in execute(engine, step).timings]


def offered(opened, method, a=0, b=1):
    accessing, owner = (b, a) if method == "sm-read" else (a, b)
    return not method.startswith("sm-") or opened[1].peer_access[accessing][owner]


def linked(nvml):
    """Whether GPU 0 has an NVLink that leads to GPU 1 or to a switch."""
    other = nvml.gpus[1].pci_bus_id.lower()
    return any(
        link.active and (link.remote_kind == "switch" or (link.remote_bus_id or "").lower() == other)
        for link in nvml.gpus[0].nvlinks
    )


def test_cuda_and_nvml_agree_on_peer_access(nvml, opened):
    for a, row in enumerate(opened[1].peer_access):
        for b, cuda in enumerate(row):
            words = [nvml.p2p[what][a][b] for what in ("read", "write") if what in nvml.p2p]
            if a != b and all(words):
                assert cuda == all(word == "OK" for word in words), f"GPU {a} to {b}: CUDA {cuda}, NVML {words}"


@pytest.mark.parametrize("method", METHODS)
def test_every_word_arrives_by_every_method(opened, method):
    if not offered(opened, method):
        pytest.skip("CUDA offers no peer access between GPU 0 and 1")
    regions = (Region(offset=0, size=4096), Region(offset=4096, size=MIB), Region(offset=0, size=SIZE))
    flow = Flow(src=0, dst=1, method=method)
    step = CopyStep(operation="integrity", purpose="integrity", flows=(flow,), regions=regions, rounds=2, devices=2)
    (check,) = verify(opened[0], step)

    assert (check.bad_rounds, check.bytes_verified) == (0, 2 * (4096 + MIB + SIZE))


def test_peer_access_on_is_faster_than_off_over_nvlink(nvml, opened, kept):
    ((on,), (off,)) = (bandwidth(opened[0], Flow(src=0, dst=1, method=m)) for m in ("ce-write", "staged"))
    kept["pair, peer access on GB/s"], kept["pair, peer access off GB/s"] = round(on, 2), round(off, 2)

    if linked(nvml) and offered(opened, "sm-write"):
        assert on > NVLINK_GAIN * off


def test_both_directions_together_reach_more_than_one(opened, kept):
    if not offered(opened, "sm-write"):
        pytest.skip("CUDA offers no peer access between GPU 0 and 1")
    (one,) = bandwidth(opened[0], Flow(src=0, dst=1))
    both = bandwidth(opened[0], Flow(src=0, dst=1), Flow(src=1, dst=0))
    kept["pair, both ways GB/s"] = round(sum(both), 2)

    assert sum(both) > 1.1 * one


def test_a_pair_agrees_with_nvbandwidth(opened, kept):
    program = shutil.which("nvbandwidth")
    if program is None:
        pytest.skip("nvbandwidth is not installed")
    words = [program, "-t", "device_to_device_memcpy_write_ce", "-j"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    tests = json.loads(done.stdout)["nvbandwidth"]["testcases"]
    theirs = float(tests[0]["bandwidth_matrix"][0][1])
    (ours,) = bandwidth(opened[0], Flow(src=0, dst=1))

    kept.close("pair GB/s by nvbandwidth's test", ours, theirs, WITHIN)


def test_collectives_between_the_gpus_are_right(cuda):
    words = [sys.executable, "-m", "gpucheck", "collectives", "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)

    assert json.loads(done.stdout)["verdict"] in ("pass", "warn"), done.stderr
