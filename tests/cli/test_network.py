"""gpucheck network on simulated machines and on hosts without network cards; and as a step of verify."""

import json

import pytest

from gpucheck.imports.network.perftest import Result
from gpucheck.processes.signals import TerminatedError

H100 = ("--simulate", "hgx-h100-x8")


def findings(text):
    return [(one["verdict"], one["check"], one["cause"], one["subject"]) for one in json.loads(text)["findings"]]


def test_a_healthy_machine_passes_and_is_marked(run):
    status, text, _ = run("network", *H100, "--pairs")

    assert status == 0
    assert text.count("SIMULATED") == 2
    assert "port 400 Gb/s, MTU 4096" in text
    assert "mlx5_0 to mlx5_7" in text
    assert "8 network cards, 48.4 to 48.7 GB/s, 97 % to 98 % of the limit" in text


@pytest.mark.parametrize(("fault", "cause"), [("nic-slow:nic=3", "nic-slow"), ("nic-rate:nic=3", "nic-rate")])
def test_a_slow_card_is_measured_again_and_named_and_its_observations_say_the_same(run, tmp_path, fault, cause):
    expected = [("fail", "nic-bandwidth", cause, "nic:0000:5e:00.0")]
    status, text, _ = run("network", *H100, "--fault", fault, "--format", "json")
    report = json.loads(text)

    assert status == 2
    assert [one for one in findings(text) if one[0] == "fail"] == expected
    low = [row for row in report["results"] if row["client"] == "mlx5_3" and row["unit"] == "GB/s"]
    assert {row["alone"] is not None for row in low if not row["together"]} == {True}

    (tmp_path / "report.json").write_text(text)
    _, text, _ = run("diagnose", "--observations", str(tmp_path / "report.json"), "--format", "json")
    assert [one for one in findings(text) if one[0] == "fail"] == expected


def test_cards_are_chosen_by_name_or_bus_id(run):
    _, text, _ = run("network", *H100, "--nics", "mlx5_2,0000:dc:00.0", "--gpu-memory", "no", "--format", "json")
    report = json.loads(text)

    assert {row["client"] for row in report["results"]} == {"mlx5_2", "mlx5_7"}
    assert {row["memory"] for row in report["results"]} == {"host"}


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (("--simulate", "no-gpu"), 3, "nic.no-active-card"),
        ((*H100, "--fault", "nic-down:nic=2", "--nics", "mlx5_2"), 3, "nic.port-not-active"),
        ((*H100, "--fault", "nic-down:nic=2"), 3, "nic.port-not-active"),
        (("--simulate", "l40s-x4", "--gpu-memory", "yes"), 0, "nic.no-gpu-near"),
    ],
)
def test_what_is_not_measured_has_a_reason(run, words, status, code):
    answer, text, _ = run("network", *words, "--format", "json")

    assert answer == status
    assert code in {one["code"] for one in json.loads(text)["findings"]}


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (H100, [("pass", None)]),
        ((*H100, "--fault", "nic-slow:nic=2"), [("warn", "nic-slow")]),
        (("--simulate", "dgx1-p100", "--fault", "peermem-missing"), [("pass", None)]),
        (("--simulate", "gb200-x4"), [("pass", None)]),
    ],
)
def test_nccl_through_each_card_alone(run, words, seen):
    _, text, _ = run("network", *words, "--nccl", "--format", "json")
    report = json.loads(text)
    rows = [row for row in report["results"] if row["operation"] == "all_reduce"]

    assert [(one["verdict"], one["cause"]) for one in report["findings"] if one["check"] == "nic-nccl"] == seen
    assert {row["memory"] for row in rows} == ({"gpudirect"} if words[1] == H100[1] else {"host"})


@pytest.mark.parametrize(("signal", "status"), [(KeyboardInterrupt(), 130), (TerminatedError(143), 143)])
def test_what_was_measured_is_printed_when_a_signal_comes(run, monkeypatch, signal, status):
    def simulated(*_):
        answers = iter([Result("RDMA test", "mlx5_0", 65536, 390.0, "Gb/s", 4096)])

        def run(tests):
            for answer in answers:
                return [answer]
            raise signal

        return run

    monkeypatch.setattr("gpucheck.measure.network.simulated", simulated)
    answer, text, _ = run("network", *H100, "--format", "json")

    assert answer == status
    assert [row["value"] for row in json.loads(text)["results"]] == [48.75]
    assert "nic.run-interrupted" in {one["code"] for one in json.loads(text)["findings"]}


def test_counters_that_rise_slowly_show_in_a_longer_window(run, tmp_path):
    slow = ("verify", "--only", "nic-counters", *H100, "--fault", "nic-errors:nic=3,per_s=20")
    assert run(*slow)[0] == 0
    status, text, _ = run(*slow, "--window", "1", "--format", "json")
    (found,) = findings(text)

    assert (status, found) == (1, ("warn", "nic-counters", "nic-errors", "nic:0000:5e:00.0"))
    run("record", *H100, "-o", tmp_path / "r")
    status, _, err = run("verify", "--from", tmp_path / "r", "--window", "1")
    assert (status, "own two readings" in err) == (64, True)
