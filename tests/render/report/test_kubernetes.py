"""Conditions and labels of a Kubernetes node, and the plugin of node-problem-detector that reads them."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from gpucheck.cli.verify.output import _conditions
from gpucheck.model import Verdict
from gpucheck.render.report.kubernetes import to_kubernetes
from tests.render.reports import finding, passed, report

PAGES = Path(__file__).parents[3] / "docs" / "integrations" / "kubernetes"
TYPES = json.loads((PAGES / "node-problem-detector-domains.json").read_text(encoding="utf-8"))
LOST = {"cause": "gpu-lost", "action": "reboot", "owner": "node", "gpu_index": 3}


def lines(*findings):
    return to_kubernetes(report(*findings, simulated=False), _conditions()).splitlines()


def condition(found, name):
    return next(line for line in found if line.startswith(f"condition {name} ")).split(" ", 2)[2]


def test_a_failure_sets_the_condition_of_its_domain_only():
    found = lines(finding(action="reset-gpu", owner="node", gpu_index=2), passed())

    assert condition(found, "GpuNvlinkUnhealthy") == "True nvlink-down gpucheck:nvlink-down g2 17/18 reset-gpu"
    assert sum(" True " in line for line in found) == 1
    assert found[0] == "gpucheck.kubernetes/1 fail 9"
    assert found[-4:] == [
        "label gpucheck.io/verdict=fail",
        "label gpucheck.io/cause=nvlink-down",
        "label gpucheck.io/action=reset-gpu",
        "end",
    ]


@pytest.mark.parametrize(
    "fields",
    [{"verdict": Verdict.WARN}, {"owner": "user"}, {"action": "wait"}, {"cause": "leftover-environment"}],
    ids=["warning", "of-the-user", "waits", "cause-of-the-job"],
)
def test_what_needs_nothing_of_the_node_sets_no_condition(fields):
    found = lines(finding(**{"action": "change-setting", "owner": "node", **fields}))

    assert not [line for line in found if line.startswith("condition") and " True " in line]


def test_a_failure_without_a_cause_is_of_the_gpu():
    assert condition(lines(finding(cause=None, action="contact-support")), "GpuUnhealthy").startswith("True nvlink ")


def test_nothing_evaluated_is_unknown_everywhere():
    found = lines(finding(verdict=Verdict.UNKNOWN, cause=None))

    assert {line.split()[2] for line in found if line.startswith("condition")} == {"Unknown"}


def test_every_condition_of_the_tables_has_a_rule():
    rules = TYPES["rules"]

    assert [rule["condition"] for rule in rules] == [row["type"] for row in TYPES["conditions"]]
    assert {rule["condition"] for rule in rules} == set(_conditions().types)
    assert all(rule["args"] == [rule["condition"]] for rule in rules)


@pytest.fixture
def plugin(tmp_path):
    """Run the plugin with a stub of gpucheck; returns (status, line, how often gpucheck ran)."""
    folder, features, runs = tmp_path / "state", tmp_path / "features", tmp_path / "runs"
    features.mkdir()

    def run(name, answer, status=0):
        (tmp_path / "answer").write_text(answer, encoding="utf-8")
        stub = tmp_path / "gpucheck"
        stub.write_text(f"#!/bin/sh\necho >> {runs}\ncat {tmp_path / 'answer'}\nexit {status}\n", encoding="utf-8")
        stub.chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "GPUCHECK_NPD_STATE": str(folder),
            "GPUCHECK_FEATURES": str(features),
        }
        command = ["sh", PAGES / "gpucheck-domain", name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stdout.strip(), runs.read_text(encoding="utf-8").count("\n")

    run.folder, run.features = folder, features
    return run


def test_plugin_runs_gpucheck_once_for_all_conditions(plugin):
    answer = to_kubernetes(report(finding(**LOST), simulated=False), _conditions())

    assert plugin("GpuUnhealthy", answer, 2) == (1, "gpu-lost gpucheck:gpu-lost g3 17/18 reboot", 1)
    assert plugin("GpuNvlinkUnhealthy", answer, 2) == (0, "NoFailure", 1)
    assert (plugin.features / "gpucheck").read_text(encoding="utf-8").splitlines() == [
        "gpucheck.io/verdict=fail",
        "gpucheck.io/cause=gpu-lost",
        "gpucheck.io/action=reboot",
    ]


@pytest.mark.parametrize("broken", ["", "Traceback: no", "gpucheck.kubernetes/1 fail 9\ncondition GpuUnhealthy Fal"])
def test_plugin_without_an_answer_keeps_the_last_one(plugin, broken):
    answer = to_kubernetes(report(finding(**LOST), simulated=False), _conditions())

    assert plugin("GpuUnhealthy", broken, 70)[0] == 2
    aged(plugin, 2)
    assert plugin("GpuUnhealthy", answer, 2)[0] == 1
    for minutes in (2, 58):
        aged(plugin, minutes)
        assert plugin("GpuUnhealthy", broken, 70)[:2] == (1, "gpu-lost gpucheck:gpu-lost g3 17/18 reboot")
    assert (plugin.features / "gpucheck").exists()


@pytest.mark.parametrize("minutes", [62, 100_000, -5], ids=["an hour", "months", "clock set back"])
def test_an_old_answer_becomes_unknown(plugin, minutes):
    """Healthy or not: after an hour without a result the node is neither, and has no labels."""
    answer = to_kubernetes(report(finding(**LOST), simulated=False), _conditions())
    assert plugin("GpuNvlinkUnhealthy", answer, 2)[0] == 0
    aged(plugin, minutes)

    assert plugin("GpuNvlinkUnhealthy", "", 70) == (2, "no verdict from gpucheck", 2)
    assert plugin("GpuUnhealthy", "", 70) == (2, "no verdict from gpucheck", 2)
    assert not (plugin.features / "gpucheck").exists()


def aged(plugin, minutes):
    for file in ("answer", "tried"):
        if (plugin.folder / file).exists():
            os.utime(plugin.folder / file, (time.time() - 60 * minutes,) * 2)
