"""gpucheck compute on simulated machines, on CPU processes and on hosts without a GPU; and as a step of verify."""

import json

import pytest

from gpucheck.compute import values
from gpucheck.compute.running import run as workers

H100 = ("--simulate", "hgx-h100-x8")


def test_a_healthy_machine_passes_and_is_marked(run):
    status, text, _ = run("compute", *H100)

    assert status == 0
    assert text.count("SIMULATED") == 2
    assert "(78%)" in text
    assert "8 devices agree" in text


def test_devices_are_chosen(run):
    _, text, _ = run("compute", *H100, "--devices", "3,5", "--format", "json")

    assert [gpu["index"] for gpu in json.loads(text)["gpus"]] == [3, 5]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("compute", "--simulate", "no-gpu"), "--devices cpu,cpu"),
        (("bandwidth", "--simulate", "no-gpu"), "no GPU to measure"),
        (("compute", "--simulate", "a100-mig-x8"), "MIG is on"),
        (("compute", *H100, "--fault", "busy-gpu:gpu=1"), "in use by"),
    ],
)
def test_what_cannot_be_computed_on_has_a_reason(run, words, expected):
    status, out, message = run(*words)

    assert (status, out) == (3, "")
    assert expected in message


def test_on_gpus_in_use_a_low_rate_cannot_fail(run):
    faults = ("--fault", "busy-gpu:gpu=1", "--fault", "gemm-slow:gpu=1")
    status, text, _ = run("compute", *H100, *faults, "--allow-busy-gpus", "--format", "json")

    assert status == 1
    assert "compute.rate-low-contended" in {finding["code"] for finding in json.loads(text)["findings"]}


@pytest.mark.slow
def test_two_cpu_processes_compute_for_real_and_agree(run, monkeypatch):
    monkeypatch.setattr(values, "CPU_S", 0.01)  # every step has its fewest samples
    status, text, _ = run("compute", "--devices", "cpu,cpu", "--format", "json")
    report = json.loads(text)

    assert status == 0, text
    assert [f["check"] for f in report["findings"]] == ["compute-results"]
    one, other = (gpu["digests"] for gpu in report["gpus"])
    assert one == other
    assert {"matrix-fp32", "matrix-bf16", "reduction-fp32"} <= set(one)


def test_without_torch_the_result_is_unknown_with_a_fix(run, monkeypatch):
    """A child whose torch is missing: python -S sees no packages but those that it is given."""
    code = (
        "import json, os, sys; sys.stdin.readline(); os.write(int(sys.argv[1]), (json.dumps("
        "{'type': 'failure', 'kind': 'missing-package', 'detail': 'torch'}) + '\\n').encode())"
    )
    monkeypatch.setattr(
        workers.Workers.__init__,
        "__kwdefaults__",
        {"small": False, "engine": "torch", "command": ("python3", "-c", code)},
    )
    status, text, _ = run("compute", "--devices", "cpu,cpu")

    assert status == 3
    assert "python -m pip install torch" in " ".join(text.split())


def test_it_is_a_step_of_verify_with_its_numbers(run):
    words = ("verify", "--simulate", "p100-pcie-x2", "--only", "compute", "--format", "json")
    status, text, _ = run(*words)
    report = json.loads(text)

    assert status == 0
    assert [gpu["gpu"] for gpu in report["measurements"]["compute"]["gpus"]] == [0, 1]
    assert {f["check"] for f in report["findings"]} == {
        "compute-matrix",
        "compute-memory",
        "compute-results",
        "compute-clocks",
    }


@pytest.mark.parametrize("profile", ["no-gpu", "a100-mig-x8"])
def test_verify_skips_where_no_whole_gpu_is(run, profile):
    _, text, _ = run("verify", "--simulate", profile, "--only", "compute", "--format", "json")

    assert [f["verdict"] for f in json.loads(text)["findings"]] == ["skip"]


def test_verify_does_not_pass_over_gpus_in_use(run):
    words = "verify --simulate p100-pcie-x2 --fault busy-gpu:gpu=0 --only compute --format json"
    status, text, _ = run(*words.split())
    report = json.loads(text)

    assert status == 3
    assert report["findings"][0]["check"] == "compute"
    assert any(entry.startswith("computing on GPUs") for entry in report["not_proven"])
