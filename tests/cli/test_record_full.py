"""record --full: answers, copies, timings and outputs in one redacted file, and a replay that evaluates them again."""

import gzip
import json
import os
import random
import signal
import subprocess
import sys

import pytest

from gpucheck.host.recording import decode, read_recording
from gpucheck.model.full_record import CopyTiming, CudaFailure, FullRecord, Ran
from gpucheck.processes.capture import Captured
from gpucheck.run import full_record as programs
from gpucheck.run.differences import differences
from tests.cli.test_record import _own_cache  # noqa: F401 - a fixture
from tests.fakes import facts
from tests.shared import sampled

SLOW = "p2p-slow:pair=0-1,percent=40"
PAIR = "p100-pcie-x2"
ALL = programs.PROGRAMS


@pytest.fixture(autouse=True)
def some_programs(monkeypatch):
    """Copies and CUDA's answers alone, unless a test names others: all of them take minutes."""

    def choose(*names):
        chosen = tuple(one for one in ALL if one.name in names)
        assert len(chosen) == len(names)
        monkeypatch.setattr(programs, "PROGRAMS", chosen)

    choose("cuda", "copies")
    return choose


def full_record(run, path, *options):
    status, out, err = run("record", "--full", "--yes", *options, "-o", path)
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
    # A recording has all of it; a report does not repeat its topology, pairs and matrices.
    whole, kept = recorded["full"]["bandwidth"], json.loads(live[1])["measurements"]["p2p"]
    whole, kept = whole["observations"], kept["observations"]
    assert set(whole) - set(kept) == {"gpus", "matrix", "uplinks"}
    assert set(whole["measured"]) - set(kept["measured"]) > {"p2p_uni_gb_s", "p2p_bidir_gb_s", "p2p_latency_us"}


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
    assert {one["way"] for one in full["timings"]} == {"gate"}
    assert {("one direction", "ce-write"), ("latency", "ce-write")} <= methods
    assert {"sm-read", "sm-write", "ce-read", "staged"} <= {method for _, method in methods}
    assert all(0 < one["min_s"] <= one["median_s"] <= one["max_s"] for one in full["timings"])
    assert set(full["seconds"]) == {"cuda", "copies"}
    assert full["complete"]
    assert "/sys/module/nvidia/parameters" in recorded["folders"]
    assert "not recorded" not in err
    # Names are the same in every part, and none identifies the host.
    uuids = [gpu["uuid"] for gpu in recorded["nvml"]["gpus"]]
    assert [device["uuid"] for device in cuda["devices"]] == uuids
    assert [device["uuid"] for device in full["bandwidth"]["devices"]] == uuids
    assert full["bandwidth"]["host"] == recorded["system"]["hostname"] != "vm"
    assert first["bus_id"] == recorded["nvml"]["gpus"][0]["pci_bus_id"].upper()


def test_what_cannot_be_measured_is_recorded_with_its_reason(run, tmp_path, elsewhere):
    recorded, err = full_record(run, tmp_path / "r", "--simulate", "a100-mig-x8")
    elsewhere()
    _, out, _ = run("verify", "--only", "p2p", "--format", "json", "--from", tmp_path / "r")
    (finding,) = (f for f in json.loads(out)["findings"] if f["check"] == "p2p")

    assert recorded["full"]["bandwidth"] is None
    assert "MIG" in recorded["full"]["not_measured"]
    assert "Copies were not recorded: " in err
    assert "MIG" in finding["seen"]


def test_a_host_without_libcuda_records_why(run, tmp_path):
    recorded, err = full_record(run, tmp_path / "r")
    full = recorded["full"]

    assert full["cuda"]["type"] == "failure"
    assert "libcuda.so.1 was not found" in full["cuda"]["why"]
    assert "nvidia-driver-cuda" in full["cuda"]["fix"]
    assert full["bandwidth"] is None
    assert "no GPU to measure" in full["not_measured"]
    assert "CUDA was not recorded: The CUDA driver library libcuda.so.1 was not found" in err


def test_it_asks_before_it_copies_computes_and_trains(run, tmp_path):
    status, _, err = run("record", "--full", "--simulate", PAIR, "-o", tmp_path / "r")

    assert status == 64
    assert "copies, matrix products and short training runs on all GPUs" in err
    assert "--yes" in err
    assert not (tmp_path / "r").exists()


def test_every_answer_of_nvml_and_of_the_kernels_is_in_it_without_what_identifies(run, tmp_path, some_programs):
    some_programs("nvidia-smi -q", "every NVML call", "kernels and ways to time")
    recorded, err = full_record(run, tmp_path / "r", "--simulate", PAIR, "--fault", "ecc-uncorrected:gpu=1")
    tool, calls, kernels = recorded["full"]["programs"]
    lines = [json.loads(line) for line in calls["output"].splitlines()]
    answers = {(one["subject"], one["call"]): one.get("value") for one in lines if one.get("code") == 0}
    tried = [json.loads(line) for line in kernels["output"].splitlines()]
    right = [one.get("right") for one in tried]

    assert tool["why"] == "not run: the GPUs are simulated, and this program is not"
    assert lines[-1] == {"call": "end"}
    assert answers["GPU 1", "nvmlDeviceGetName"] == "Tesla P100-PCIE-16GB"
    assert answers["GPU 1", "nvmlDeviceGetUUID"] == "hidden"
    assert {one["arguments"][0] for one in lines if one["call"] == "nvmlDeviceGetFieldValues"} >= {82, 160, 231, 307}
    assert right.count(True) > 30
    assert {one["pinned_mib"] for one in tried if "pinned_mib" in one and one["gb_s"]} == {16, 32, 64}
    assert False not in right
    assert {(one["way"], one["copy_mib"]) for one in tried if one.get("gb_s") and "copy_mib" in one} >= {
        ("gate", 64), ("spin", 64), ("events", 64)
    }  # fmt: skip
    assert recorded["differences"] == []
    assert "it is made for a public issue" in err


def test_without_nvml_only_its_start_is_no_expected_answer(run, tmp_path, some_programs):
    some_programs("every NVML call")
    recorded, _ = full_record(run, tmp_path / "r", "--simulate", PAIR, "--fault", "driver-mismatch")

    assert [one["subject"] for one in recorded["differences"]] == ["nvmlInit"]


def test_a_training_that_these_gpus_cannot_run_is_not_run(run, tmp_path, some_programs):
    some_programs("train: torch ddp, gpt, bf16")
    recorded, _ = full_record(run, tmp_path / "r", "--simulate", PAIR)

    assert recorded["full"]["programs"][0]["why"].startswith("not run: --precision bf16")
    assert recorded["differences"] == []


def test_computing_is_kept_step_by_step_with_clocks_watts_and_throttle_reasons(run, tmp_path, some_programs):
    some_programs("compute")
    recorded, _ = full_record(run, tmp_path / "r", "--simulate", PAIR, "--fault", "throttle-thermal:gpu=1")
    (ran,) = recorded["full"]["programs"]
    *steps, report = [json.loads(line) for line in ran["output"].splitlines()]
    sample = steps[-1]["answers"]["1"]["samples"][0]

    assert {one["step"]["kind"] for one in steps} >= {"matrix", "memory", "results"}
    assert {place for one in steps for place in one["answers"]} == {"0", "1"}
    assert sample["sm_clock_mhz"]
    assert sample["power_w"]
    assert "hw-thermal" in sample["reasons"]
    assert report["gpus"][0]["gemm"]["fp32"]["tflops"]
    assert any(one["source"] == "compute" and "compute-clocks" in one["subject"] for one in recorded["differences"])


def test_a_training_runs_by_its_own_words(run, tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "PROGRAMS", (programs._part("version", 20, "train", "--version"),))
    recorded, _ = full_record(run, tmp_path / "r", "--simulate", PAIR)
    (ran,) = recorded["full"]["programs"]

    assert (ran["status"], ran["output"].split()[0]) == (0, "gpucheck,")
    assert {one.command[2] for one in ALL if one.name.startswith("train: ")} == {"train"}


def test_the_differences_come_first_and_name_a_wrong_kernel_a_strange_code_and_every_doubt():
    def ran(name, output, **rest):
        return Ran(name=name, command=("-m", "x"), limit_s=1.0, **{"status": 0, "output": output, **rest})

    doubt = {"subject": "GPU 0", "verdict": "unknown", "seen": "?", "wanted": 18, "why": "unknown"}
    report = {
        "findings": [
            {"check": "ecc", **doubt},
            {"check": "kernel-log", **doubt, "seen": None, "why": "not readable"},
            {"check": "mig", **doubt, "because_of": "driver"},
        ]
    }
    full = FullRecord(
        cuda=CudaFailure(why="libcuda.so.1 was not found"),
        bandwidth=None,
        not_measured=None,
        timings=(),
        seconds={},
        programs=(
            Ran(name="cuda", command=(), limit_s=1.0, status=0),
            ran(
                "every NVML call", '{"call":"nvmlInit","code":0}\n{"call":"nvmlA","code":15}\n{"call":"nvmlB"', why="x"
            ),
            ran(
                "kernels and ways to time",
                '{"part":"GPU 0","kernel":"fill","words":27,"right":false}\n'
                '{"copy_mib":64,"way":"gate","gb_s":[99.0]}\n{"copy_mib":64,"way":"spin","gb_s":[50.0]}\n'
                '{"copy_mib":64,"way":"events","gb_s":[100.0]}\n{"copy_mib":256,"way":"gate","why":"full"}',
            ),
            ran("verify, level quick", json.dumps(report)),
            ran("verify", json.dumps({"findings": [one | {"seen": "other words"} for one in report["findings"]]})),
            ran("compute", "", status=64, why="any words", skipped=True),
            ran("train: cupy", "", status=-11, why="ended by SIGSEGV"),
            ran("nvbandwidth -j", "", status=None, why="not run: nvbandwidth is not installed", skipped=True),
        ),
    )
    found = {(one.source, one.subject): one.seen for one in differences(facts().gpus, full)}

    assert found.pop(("every NVML call", "last call")).endswith('{"call":"nvmlB"')
    assert found == {
        ("cuda", "CUDA driver"): "libcuda.so.1 was not found",
        ("every NVML call", "nvmlA"): "code 15, 1 times",
        ("kernels and ways to time", "GPU 0: fill"): "wrong answer with 27 words",
        ("kernels and ways to time", "copies of 64 MiB timed by spin"): "50.0 GB/s",
        ("kernels and ways to time", "copies of 256 MiB timed by gate"): "full",
        ("verify, level quick", "ecc, GPU 0"): "UNKNOWN ?",
        ("verify, level quick", "kernel-log, GPU 0"): "UNKNOWN not readable",
        ("train: cupy", "program"): "ended by SIGSEGV",
    }


def test_nothing_stops_at_a_failure_and_copies_are_kept_up_to_a_cut(monkeypatch):
    timing = CopyTiming(
        purpose="x", together=1, src=0, dst=1, method="ce-write", node=None, size=1, repeats=1, samples=1, median_s=1.0,
        mad_s=0.0, min_s=1.0, max_s=1.0,
    )  # fmt: skip
    line = b'{"timings":[' + programs.msgspec.json.encode(timing) + b"]}"
    answers = iter(
        [OSError(11, "no more processes"), Captured(None, line + b"\n" + line[:40], b""), Captured(7, b"", b"y")]
    )

    def completed(command, seconds):
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(programs, "completed", completed)
    chosen = tuple(one for one in ALL if one.name in ("every NVML call", "copies", "compute"))
    *_, full = programs.take(facts(), chosen)

    assert [(ran.status, ran.why) for ran in full.programs] == [
        (None, "it did not start: no more processes"),
        (None, programs.LATE),
        (7, None),
    ]
    assert (full.timings, full.bandwidth, full.not_measured, full.complete) == ((timing,), None, programs.LATE, True)


def test_a_program_of_the_system_is_found_outside_the_path_of_a_user(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    *_, full = programs.take(facts(), (programs.Program("libraries", 20.0, ("ldconfig", "-p")),))

    assert full.programs[0].status == 0
    assert "libc.so.6" in full.programs[0].output


def test_what_does_not_fit_into_the_time_is_named_and_the_rest_has_less(monkeypatch):
    now, limits = [0.0], []

    def completed(command, seconds):
        limits.append(seconds)
        now[0] += 50.0
        return Captured(0, b"", b"")

    monkeypatch.setattr(programs.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(programs, "completed", completed)
    chosen = tuple(programs.Program(name, 60.0, ("-m", "x")) for name in "abcd")
    *_, full = programs.take(facts(), chosen, whole_s=120.0)

    assert limits == [60.0, 60.0, 20.0]
    assert [ran.why for ran in full.programs] == [None, None, None, programs.OVER]
    assert full.complete


def test_the_programs_leave_time_to_end_and_to_redact(run, tmp_path, some_programs, monkeypatch):
    """--within is of the whole command, and a recording of eight GPUs took 127 to 139 s of 120."""
    some_programs("cuda")
    given = []
    take = programs.take
    monkeypatch.setattr(programs, "take", lambda *rest, whole_s: given.append(whole_s) or take(*rest, whole_s=whole_s))

    full_record(run, tmp_path / "r.json.gz", "--simulate", PAIR, "--within", "1000")

    assert 0 < given[0] < 900


def test_gpus_in_use_are_only_read(run, tmp_path, some_programs):
    some_programs("every NVML call", "copies", "compute", "verify")
    recorded, err = full_record(run, tmp_path / "r", "--simulate", PAIR, "--fault", "busy-gpu:gpu=0")
    calls, *heavy = recorded["full"]["programs"]

    assert calls["status"] == 0
    assert {one["status"] for one in heavy} == {None}
    assert all(one["why"].startswith("not run: GPUs are in use, GPU 0 by process") for one in heavy)
    assert "copies, compute, verify: not run: GPUs are in use" in err


def test_what_tools_print_is_redacted(run, tmp_path, some_programs, monkeypatch):
    smi = (
        "    Serial Number  : 1652923012345\n    GPU UUID : GPU-7c8f0d2a-1111-2222-3333-444455556666\n"
        "    GPU PDI : 0x9f3d2c1b0a998877\n        GPU Fabric GUID : 0x2a4b6c8d0e1f2031\n"
        "    Chassis Serial Number : 1823925000123\n    VBIOS Version : 96.00.74.00.01\n"
        "<serial>1652923012346</serial><pdi>0x1f3d2c1b0a998877</pdi> Name : /home/alice/train.py on node17.site.org\n"
    )
    tool = programs.Program("tool", 5.0, ("-m", "gpucheck", "--version"))
    monkeypatch.setattr(programs, "PROGRAMS", (tool._replace(command=("nvidia-smi", "-q")),))
    monkeypatch.setattr(programs, "completed", lambda command, seconds: Captured(0, smi.encode(), b""))
    monkeypatch.setattr(programs.shutil, "which", lambda name: "/usr/bin/" + name)
    recorded, _ = full_record(run, tmp_path / "r")
    (ran,) = recorded["full"]["programs"]

    for secret in ("1652923012345", "1652923012346", "7c8f0d2a", "9f3d2c1b", "1f3d2c1b", "2a4b6c8d", "1823925000123"):
        assert secret not in ran["output"]
    for secret in ("alice", "node17"):
        assert secret not in ran["output"]
    assert "VBIOS Version : 96.00.74.00.01" in ran["output"]


def test_what_a_late_program_printed_is_in_the_file_before_the_next_one_runs(run, tmp_path, monkeypatch):
    file = tmp_path / "r"
    first, second = (programs.Program(name, 5.0, ("-m", "gpucheck", name)) for name in ("first", "second"))
    monkeypatch.setattr(programs, "PROGRAMS", (first, second))
    found = []

    def completed(command, seconds):
        if command[-1] == "second":
            found.extend(read_recording(file).full.programs)
        return Captured(None, b"printed until then", b"")

    monkeypatch.setattr(programs, "completed", completed)
    full_record(run, file)

    assert [(one.name, one.why, one.output) for one in found] == [("first", programs.LATE, "printed until then")]


@pytest.mark.slow
@pytest.mark.parametrize("until", sampled(range(1, 20, 3), (1,)))
def test_a_recording_that_is_killed_at_any_moment_holds_all_that_had_run(tmp_path, cache, until):
    """Killed with SIGKILL: what ran before the announced program is in the file, and the file can be replayed."""
    file = tmp_path / "r"
    started = subprocess.Popen(
        [sys.executable, "-m", "gpucheck", "record", "--full", "--yes", "--simulate", PAIR, "-o", str(file)],
        env=os.environ | {"XDG_CACHE_HOME": str(cache), "GPUCHECK_SIMULATOR": ""},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    announced = 0
    for line in started.stderr:
        announced = int(line.split()[0]) if " of " in line else announced
        if announced >= until:
            break
    with pytest.raises(subprocess.TimeoutExpired):
        started.wait(random.Random(until).random() * 1.5)
    os.killpg(started.pid, signal.SIGKILL)
    started.communicate()
    full = read_recording(file).full
    ran = [one.name for one in full.programs] if full else []
    assert ran == [one.name for one in ALL[: len(ran)]]
    missed = ALL[len(ran) : announced - 1]
    assert all(one.command[:1] not in ((), ("-m",)) for one in missed), missed  # such do not run in a simulation
    assert full is None or not full.complete
    assert decode(file.read_bytes(), "r").redacted
