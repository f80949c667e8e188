"""The driver engine whole, on the simulated CUDA driver library: what a run reports, and how CUDA errors end it."""

import json
import os
import subprocess
import sys

import pytest

from gpucheck.measure.planning.plan import CopyPaths, MeasurementRequest, plan
from gpucheck.measure.reporting.report import host_links
from gpucheck.measure.running.runner import Results
from gpucheck.measure.values import Opened, Timing
from gpucheck.model.copies import HOST, Flow
from gpucheck.model.device import Device
from tests.shared import END_S, sampled

PAIR = "p100-pcie-x2"
CHANNEL = "nvidia-caps-imex-channels/channel0"


def run(profile, *faults, level="quick", before="", **environment):
    """The report of gpucheck bandwidth. before: a program around it, which starts it by GPUCHECK_COMMAND."""
    words = [sys.executable, "-m", "gpucheck", "bandwidth", "--simulate", profile, "--level", level, "--format", "json"]
    words += [word for fault in faults for word in ("--fault", fault)]
    own = {**os.environ, **environment, "GPUCHECK_COMMAND": json.dumps(words)}
    command = [sys.executable, "-c", before] if before else words
    done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=END_S, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def copies(report):
    return next(finding for finding in report["findings"] if finding["check"] == "p2p-copies")


def is_fabric(finding):
    return finding["check"] == "fabric-memory"


@pytest.fixture(scope="module")
def full():
    return run(PAIR, level="full")


def test_every_method_is_measured_and_every_word_arrives(full):
    assert (full["engine"], full["verdict"], full["simulated"]) == ("driver", "pass", True)
    (pair, _) = full["pairs"]
    assert set(pair["by_method"]) == {"ce-read", "sm-write", "sm-read"}
    assert pair["staged_gb_s"] < pair["measured"]["gb_s"]
    assert 0 < pair["load_latency_us"] < 10
    assert full["integrity"]["wrong_words"] == 0


@pytest.mark.parametrize("kind", ["stale", "other-pair", "untouched", "shifted", "zeros", "bit-flip"])
def test_damaged_data_is_observed_by_its_kind(kind):
    seen = run(PAIR, f"p2p-corrupt:pair=0-1,kind={kind}")["observations"]["measured"]
    (damaged,) = seen["damaged"]

    assert damaged["damage"] == seen["damage"] == kind
    assert damaged["pairs"] == seen["integrity_bad_pairs"] == [[0, 1], [1, 0]]
    assert 0 < damaged["wrong"] <= damaged["words"]
    assert any("got " in line for line in damaged["evidence"])


def test_peer_access_by_cuda_stands_beside_nvmls_status(full):
    assert full["peer_access"] == {"cuda": [[None, True], [True, None]], "nvml": [[None, "OK"], ["OK", None]]}
    assert full["observations"]["p2p_access"] == [[None, True], [True, None]]


@pytest.mark.parametrize(("profile", "offered"), [(PAIR, False), ("gb200-x4", True)])
def test_fabric_handles_are_reported_for_each_gpu(profile, offered):
    report = run(profile)

    assert {device["fabric_handles"] for device in report["devices"]} == {offered}
    shared = [(finding["verdict"], finding["seen"]) for finding in report["findings"] if is_fabric(finding)]
    passed = "67.1 MB copied through memory imported by fabric handles on this host, no wrong word"
    assert shared == [("pass", passed)] * offered


@pytest.mark.parametrize(
    ("faults", "error", "verdict", "cause", "seen"),
    sampled(
        [
            ([f"node-missing:node={CHANNEL}"], "", "skip", None, "no IMEX channel"),
            ([], "cuMemCreate=800", "warn", "imex-down", "800 (cudaErrorNotPermitted) from cuMemCreate"),
            ([], "cuMemImportFromShareableHandle=801", "warn", "imex-down", "from cuMemImportFromShareableHandle"),
            ([], "cuMemCreate=2", None, None, ""),
        ],
        (1,),
    ),
)
def test_memory_that_hosts_cannot_share_is_reported_and_no_copy_is_blamed(faults, error, verdict, cause, seen):
    report = run("gb200-x4", *faults, GPUCHECK_CUDA_ERROR=error)

    shared = [finding for finding in report["findings"] if is_fabric(finding)]
    assert [(finding["verdict"], finding["cause"]) for finding in shared] == [(verdict, cause)] * bool(verdict)
    assert all(seen in finding["seen"] for finding in shared)
    others = {finding["check"]: finding["verdict"] for finding in report["findings"] if not is_fabric(finding)}
    assert others.pop("p2p-copies", "unknown") == "unknown"
    assert set(others.values()) == {"pass"}


def test_gpus_without_peer_access_are_copied_through_the_host_and_no_kernel_touches_their_memory():
    report = run("rtx4090-x2", level="full")

    assert report["peer_access"]["cuda"] == [[None, False], [False, None]]
    assert {method for pair in report["pairs"] for method in pair["by_method"]} == {"ce-read"}
    assert "load_latency_us" not in report["matrices"]
    assert report["integrity"]["wrong_words"] == 0
    assert [f for f in report["findings"] if f["check"] == "p2p-copies"] == []


@pytest.mark.parametrize(
    ("profile", "refusal", "way"),
    sampled(
        [
            (PAIR, {}, "gate"),
            (PAIR, {"GPUCHECK_CUDA_ERROR": "cuStreamWaitValue32=801"}, "spin"),
            ("rtx4090-x2", {"GPUCHECK_CUDA_BLOCKING": "1"}, "events"),
            (PAIR, {"GPUCHECK_CUDA_BLOCKING": "1"}, "gate"),
            (PAIR, {"GPUCHECK_CUDA_QUEUE": "2"}, "events"),
        ],
        (0, 1, 2),
    ),
)
def test_copies_that_cannot_be_held_back_are_timed_another_way_and_say_so(profile, refusal, way):
    """As with confidential computing, and with copies without peer access that block the host."""
    report, rate = run(profile, **refusal), {PAIR: 13.39, "rtx4090-x2": 10.24}[profile]

    assert report["verdict"] == "pass"
    assert {pair["measured"]["timing"] for pair in report["pairs"]} == {way}
    assert report["pairs"][0]["measured"]["gb_s"] == pytest.approx(rate, rel=0.02)
    said = {"spin": "rejects stream waits", "events": "timed by events alone"}
    assert [word for word in said.values() if word in " ".join(report["method"])] == [
        said[way] for way in [way] if way in said
    ]
    assert report["integrity"]["wrong_words"] == 0


HOLDER = """
import ctypes, json, os, subprocess, sys
from gpucheck.simulator import activate
directory = activate("p100-pcie-x2", ["compute-exclusive:gpu=0"])
ctypes.CDLL(str(directory / "lib/libcuda.so.1"))
from cuda.bindings import driver
driver.cuInit(0)
assert driver.cuDevicePrimaryCtxRetain(0)[0] == 0
sys.exit(subprocess.run(json.loads(os.environ["GPUCHECK_COMMAND"])).returncode)
"""


def test_a_gpu_in_exclusive_mode_that_another_process_uses_is_named():
    finding = copies(run(PAIR, "compute-exclusive:gpu=0", before=HOLDER))

    assert finding["verdict"] == "unknown"
    assert finding["code"] == "measure.cuda-gpu-exclusive"
    assert "nvidia-smi -c DEFAULT" in finding["fix"]


INSIDE = """
import os, sys
from gpucheck.simulator import activate
activate("p100-pcie-x2")
from gpucheck.host import live_source
from gpucheck.measure.engines.driver.engine import DriverEngine
from gpucheck.measure.planning.selection import device
from gpucheck.measure.running.child import open_engine
from gpucheck.measure.values import Opened, Setup
gpus = live_source(isolated=True, deadline_s=60.0).read("nvml").nvml.gpus
devices = tuple(device(gpu) for gpu in gpus)
opened = open_engine(
    DriverEngine(), Setup(engine="driver", devices=devices, buffer_bytes=64 << 30, parent_pid=os.getpid())
)
assert isinstance(opened, Opened), opened
assert opened.buffer_bytes == 4 << 30, opened.buffer_bytes
assert "buffers shrunk from 65536 to 4096 MiB" in opened.notes[0], opened.notes
assert not {"torch", "numpy", "cupy"} & set(sys.modules)
print("good")
"""


def test_buffers_shrink_to_the_memory_that_is_free_and_no_framework_is_imported():
    done = subprocess.run([sys.executable, "-c", INSIDE], capture_output=True, text=True, timeout=END_S, check=False)

    assert done.stdout.strip() == "good", done.stderr


TWO = tuple(Device(index=i, name="GPU", bus_id=f"0000:0{i}:00.0", numa_node=i) for i in range(2))


def test_host_copies_of_a_full_run_use_pinned_memory_of_every_numa_node():
    request = MeasurementRequest(depth="full", methods=("ce-write",), numa_nodes=(0, 1))
    flows = [
        step.flows[0]
        for step in plan(CopyPaths(devices=TWO, to_host=((), ())), request)
        if step.purpose == "host and device"
    ]

    assert flows[:6] == [Flow(src=a, dst=b, node=node) for node in (None, 0, 1) for a, b in ((HOST, 0), (0, HOST))]
    quick = plan(CopyPaths(devices=TWO, to_host=((), ())), MeasurementRequest(methods=("ce-write",), numa_nodes=(0, 1)))
    assert {step.flows[0].node for step in quick if step.purpose == "host and device"} == {None}


def test_host_rates_are_reported_by_node():
    results = Results(devices=TWO, opened=Opened(buffer_bytes=1, methods=("ce-write",), clock=""))
    for node, seconds in ((None, 1e-3), (0, 1e-3), (1, 2e-3)):
        flow = Flow(src=HOST, dst=0, node=node)
        results.host[flow] = Timing(
            flow=flow, size=10**7, repeats=1, samples=1, median_s=seconds, mad_s=0, min_s=seconds, max_s=seconds
        )
    (link,) = host_links(results, CopyPaths(devices=TWO, to_host=((), ())))

    assert (link.h2d_gb_s, link.d2h_gb_s) == (10.0, None)
    assert [(node.node, node.h2d_gb_s) for node in link.by_node] == [(0, 10.0), (1, 5.0)]


@pytest.mark.parametrize(
    ("faults", "environment", "code", "fix"),
    [
        ((), {"GPUCHECK_CUDA_ERROR": "cuInit=805"}, "measure.mps-not-reached", "get_server_list"),
        ((), {"GPUCHECK_CUDA_ERROR": "cuMemAlloc=2"}, "measure.cuda-no-memory", "free -h"),
        ((), {"GPUCHECK_CUDA_WITHOUT": "cuDeviceCanAccessPeer"}, "measure.driver-call-missing", "driver 525"),
        (("node-missing:node=nvidia-uvm",), {}, "measure.uvm-missing", "modprobe nvidia-uvm"),
    ],
)
def test_an_engine_that_cannot_start_names_the_reason_and_blames_no_pair(faults, environment, code, fix):
    report = run(PAIR, *faults, **environment)
    finding = copies(report)

    assert report["verdict"] == "unknown"
    assert finding["code"] == code
    assert fix in finding["fix"]


LOSES = """
import os, sys
from pathlib import Path
from gpucheck import simulator
from gpucheck.simulator.activation import STAND_INS
machine = Path(sys.argv[1])
simulator.make(simulator.load("p100-pcie-x2"), machine, (), STAND_INS)
os.environ["GPUCHECK_SIMULATOR"] = str(machine)
from gpucheck.host import live_source
from gpucheck.measure.bandwidth import BandwidthOptions
from gpucheck.measure.values import Watch
from gpucheck.render.formats import to_json
from gpucheck.run.links import bandwidth
from tests.simulator.helpers import switch
def step(text, number, count):
    if number == 5:
        switch(machine, "p100-pcie-x2", ["gpu-lost:gpu=1"])
host = live_source(isolated=True, deadline_s=60.0)
print(to_json(bandwidth(host, BandwidthOptions(depth="quick"), Watch(step=step))))
"""


def test_a_gpu_that_disappears_during_the_copies_is_named(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LOSES, str(tmp_path / "machine")],
        env={**os.environ, "GPUCHECK_SIMULATOR": ""},
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )
    assert done.stdout, done.stderr[-2000:]
    first, *others = (f for f in json.loads(done.stdout)["findings"] if f["check"] == "p2p-copies")

    assert (first["verdict"], first["cause"], first["subject"]) == ("fail", "gpu-lost", "gpu:0000:05:00.0")
    assert first["seen"] == "GPU 1 was lost during the copies"
    assert "CUDA error 999" in others[0]["seen"]


def test_verify_without_training_does_not_import_torch(tmp_path):
    """In any of its processes: a package of that name records who imports it; to look for it is not to import it."""
    marker = tmp_path / "imported"
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text(f"import sys\nopen({str(marker)!r}, 'a').write(' '.join(sys.argv))\n")
    own = {**os.environ, "PYTHONPATH": str(tmp_path), "GPUCHECK_SIMULATOR": ""}
    words = [sys.executable, "-m", "gpucheck", "verify", "--simulate", "p100-pcie-x2", "--skip", "training"]
    done = subprocess.run(
        [*words, "--format", "json"], env=own, capture_output=True, text=True, timeout=END_S, check=False
    )

    assert '"p2p-bandwidth"' in done.stdout, done.stderr
    assert not marker.exists(), marker.read_text()
    subprocess.run([sys.executable, "-c", "import torch"], env=own, check=True)
    assert marker.exists()
