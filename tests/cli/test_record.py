"""record and --from: the same report again, from one file, or one clear line."""

import gzip
import json
import os
import re
import threading

import pytest

from gpucheck import simulator
from gpucheck.host import live as of_host
from gpucheck.host.recording import recording as recorded
from gpucheck.model import Check, DriverState, Finding, Verdict
from gpucheck.model.facts import Facts
from gpucheck.run import verification as runs
from gpucheck.run.step import Guard
from tests import forked
from tests.fakes import SYSTEM, facts, live
from tests.shared import sampled

FAULTS = ("--fault", "pcie-width:gpu=1,width=8", "--fault", "nvlink-down:gpu=0,link=3")


def timeless(report):
    """Without when it was made and how long it took."""
    # How long counters of network ports were watched is part of what a PASS states.
    return json.loads(re.sub(r"(ports?), \d+\.\d s\"", r'\1"', report), object_hook=_timeless)


def _timeless(part):
    return {key: value for key, value in part.items() if key not in ("started", "seconds")}


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, cache):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("GPUCHECK_SIMULATOR", "")


@pytest.fixture(scope="module")
def recording(tmp_path_factory, cache):
    """A recording of a broken machine."""
    file = tmp_path_factory.mktemp("recording") / "r"
    words = ("record", "--simulate", "hgx-h100-x8", *FAULTS, "--no-redact", "-o", file)
    done = forked.gpucheck(*words, env=os.environ | {"XDG_CACHE_HOME": str(cache)})
    assert (done.returncode, done.stdout) == (0, "")
    return file


@pytest.mark.parametrize(
    "command",
    [
        ("verify", "--level", "quick", "--format", "json"),
        ("topo", "--format", "json"),
        ("stack", "check", "--format", "json"),
        ("stack", "resolve", "--format", "json"),
        ("stack", "resolve", "--gpu", "8xH200", "--format", "json"),
    ],
    ids=" ".join,
)
def test_a_replay_comes_to_the_same_report(run, recording, monkeypatch, command):
    """Everything but the start and the seconds, down to the last digit and the order."""
    replayed = run(*command, "--from", recording)
    live = run(*command, "--simulate", "hgx-h100-x8", *FAULTS)

    assert replayed[0] == live[0]
    assert json.dumps(timeless(replayed[1])) == json.dumps(timeless(live[1]))


@pytest.mark.parametrize("command", [("verify",), ("topo",), ("stack", "check"), ("stack", "resolve")])
def test_the_text_of_a_replay_says_when_it_was_recorded(run, recording, command):
    """First, so that nobody takes it for the state of this moment or of this host; and that it was simulated."""
    first = run(*command, "--from", recording)[1].splitlines()[0]

    assert re.match(r"recorded on \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00 by gpucheck \S+, SIMULATED hardware$", first)


def test_nothing_is_measured_on_a_replay(run, recording):
    status, out, _ = run("verify", "--from", recording, "--format", "json")
    (finding,) = (f for f in json.loads(out)["findings"] if f["check"] == "smoke-ddp")

    assert (finding["verdict"], finding["seen"]) == ("skip", "a recording")
    assert "verify --only smoke-ddp" in finding["fix"]
    assert status == 2


def test_a_replay_says_when_the_host_was_asked(run, recording):
    """Not when it was replayed: a baseline of last week must not look like today."""
    _, out, _ = run("verify", "--level", "quick", "--format", "json", "--from", recording)

    assert json.loads(out)["started"] == json.loads(gzip.decompress(recording.read_bytes()))["recorded"]


def test_by_default_nothing_identifies_the_host_and_what_was_redacted_is_counted(run, tmp_path, recording):
    status, _, err = run("record", "--simulate", "hgx-h100-x8", *FAULTS, "-o", tmp_path / "redacted")
    plain, kept = (json.loads(gzip.decompress(p.read_bytes())) for p in (recording, tmp_path / "redacted"))

    assert status == 0
    assert (plain["redacted"], kept["redacted"]) == (False, True)
    assert not {g["uuid"] for g in plain["nvml"]["gpus"]} & {g["uuid"] for g in kept["nvml"]["gpus"]}
    assert kept["system"]["hostname"] != plain["system"]["hostname"]
    assert (recording.stat().st_mode & 0o777, (tmp_path / "redacted").stat().st_mode & 0o777) == (0o600, 0o640)
    counts = kept["redactions"]
    assert (counts["serial number"], counts["UUID"] >= 8) == (8, True)
    assert f"{counts['UUID']} UUIDs, " in err
    assert "8 serial numbers; check it before you publish it" in err
    assert "no secret" not in err


def outcome(report):
    """What was judged, without names and without how long it took."""
    document = json.loads(report)
    keys = ("check", "subject", "verdict", "cause", "confidence", "probability", "action", "owner", "gpu_index")
    return document["verdict"], [tuple(finding.get(key) for key in keys) for finding in document["findings"]]


FAULT_OF = {
    "hgx-h100-x8": "gpu-lost:gpu=2",
    "l40s-x4": "xid:gpu=1,code=79",
    "h100-nvl-x2": "nvlink-down:gpu=0,link=3",
    "rtx4090-x2": "nccl-env",
    "p100-pcie-x2": "driver-mismatch",
    "t4-vm-x1": "row-remap-pending:gpu=0",
}


@pytest.mark.parametrize("profile", sampled(simulator.profile_names(), lambda _, name: name in FAULT_OF))
def test_a_redacted_replay_has_the_verdicts_of_the_host(run, tmp_path, monkeypatch, profile):
    """Of every machine, some with a fault."""
    monkeypatch.setenv("CUDA_MODULE_LOADING", "EAGER")
    monkeypatch.setenv("GPUCHECK_SIMULATOR", "")
    options = ("--simulate", profile, *(("--fault", FAULT_OF[profile]) if profile in FAULT_OF else ()))
    quick = ("verify", "--level", "quick", "--format", "json")
    assert run("record", *options, "-o", tmp_path / "r")[0] == 0
    monkeypatch.setenv("GPUCHECK_SIMULATOR", "")
    live = outcome(run(*quick, *options)[1])
    monkeypatch.setenv("GPUCHECK_SIMULATOR", "")

    assert outcome(run(*quick, "--from", tmp_path / "r")[1]) == live
    assert len(live[1]) > 20


def test_a_question_that_was_not_recorded_is_unknown():
    """An older recording and a newer check: not "not there", and the other checks are judged."""
    older = recorded(Facts(system=SYSTEM, driver=DriverState()), version="0.1.0", now="2026-11-21T16:00:00+00:00")
    newer = Check("newer", frozenset({"quick"}), lambda _: [], needs=("text:/etc/newer",))
    good = Finding(check="fine", verdict=Verdict.PASS, subject="host")
    fine = Check("fine", frozenset({"quick"}), lambda _: [good], needs=("driver",))
    findings = [Guard(older).run(runs._check_step(check)).findings for check in (newer, fine)]

    assert [f.verdict for (f,) in findings] == [Verdict.UNKNOWN, Verdict.PASS]
    assert findings[0][0].code == "run.reading-not-recorded"
    assert "does not contain file /etc/newer" in findings[0][0].evidence[0]


def test_a_recording_that_lacks_what_a_command_needs_is_64(run, recording, monkeypatch):
    monkeypatch.setattr("gpucheck.run.topology.examine", lambda source: source.read("text:/etc/newer"))
    status, out, err = run("topo", "--from", recording)

    assert (status, out) == (64, "")
    assert err.startswith("Error: the recording does not contain file /etc/newer. Record the host again")
    assert err.count("\n") == 1


def test_what_hangs_is_not_recorded_and_named(run, tmp_path, monkeypatch):
    """A kernel that never answers about the PCI bus: the rest of the host is recorded, and evaluated elsewhere."""
    end = threading.Event()
    monkeypatch.setattr(of_host, "READ_S", 0.3)
    monkeypatch.setattr(of_host, "AFTER_STUCK_S", 0.3)
    host = live(monkeypatch, facts(), pci=lambda: end.wait(60))
    monkeypatch.setattr("gpucheck.host.live_source", lambda **_: host)

    status, _, err = run("record", "-o", tmp_path / "r")
    found = json.loads(run("verify", "--level", "quick", "--from", tmp_path / "r", "--format", "json")[1])["findings"]
    end.set()

    assert status == 0
    assert "not recorded, because it could not be read: pci, nvml, device_files" in err
    assert {f["verdict"] for f in found if f["check"] in ("inventory", "pcie-link")} == {"unknown"}
    assert {f["verdict"] for f in found if f["check"] == "limits"} <= {"pass", "skip"}
