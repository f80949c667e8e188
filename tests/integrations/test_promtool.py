"""promtool on what gpucheck wrote: its metrics, and what rules and dashboard make of healthy and faulty machines.

The clock of promtool starts at 0 and a simulated machine never alerts. So the metrics of one are read as
those of a real one: without the label, and with a run at 0.
"""

import json
import re
import shutil
from functools import cache
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from gpucheck.cli import cli
from tests.promtool import needs_promtool, promtool

pytestmark = [pytest.mark.slow, needs_promtool]
PAGES = Path(__file__).parents[2] / "docs" / "integrations" / "prometheus"
PANELS = json.loads((PAGES / "dashboard.json").read_text(encoding="utf-8"))["panels"]
HEALTHY = ("hgx-h100-x8",)
# Small, so that its copies are measured as well.
MEASURED = ("h100-nvl-x2", "nvlink-down:gpu=1,link=3")
NVLINK = ("hgx-h100-x8", "nvlink-down:gpu=2,link=3")
WARNED = ("hgx-h100-x8", "persistence-off")
LIBRARY = ("hgx-h100-x8", "nvml-hang")
LIMITS = ("hgx-h100-x8", "shm-small")
NO_GPU = ("no-gpu",)
MINUTES = 10
DAY = 24 * 60 // MINUTES
PASSED = (0, "Unit Testing:  test.yml\n  SUCCESS\n\n")
FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'


@cache
def written(profile, *faults):
    """The metrics that gpucheck writes about a simulated machine."""
    words = [
        "verify",
        "--simulate",
        profile,
        "--only",
        "p2p,quick" if (profile, *faults) == MEASURED else "quick",
        "--timeout",
        "2",
        "--format",
        "prometheus",
    ]
    done = CliRunner().invoke(cli, [*words, *(word for fault in faults for word in ("--fault", fault))])
    assert "gpucheck_status" in done.stdout, done.output
    return done.stdout


def series(machine, host="node07", *, simulated=False):
    """Each sample as an input series of promtool: the same value for a day."""
    for family in text_string_to_metric_families(written(*machine)):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if value} | {"Hostname": host}
            if not simulated:
                assert labels.pop("simulated") == "true"
            value = 0 if sample.name == "gpucheck_last_run_timestamp_seconds" else sample.value
            inside = ",".join(f"{name}={json.dumps(text)}" for name, text in labels.items())
            yield {"series": f"{sample.name}{{{inside}}}", "values": f"{value}x{DAY}"}


def evaluate(folder, inputs, expressions):
    """Let promtool evaluate: (expression, time) -> samples, as {labels: value}. The rules are those that we publish."""
    tests = [
        {
            "expr": expression,
            "eval_time": time,
            "exp_samples": [{"labels": key, "value": n} for key, n in found.items()],
        }
        for (expression, time), found in expressions.items()
    ]
    file = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": f"{MINUTES}m",
        "tests": [{"interval": f"{MINUTES}m", "input_series": list(inputs), "promql_expr_test": tests}],
    }
    shutil.copy(PAGES / "rules.yml", folder)
    (folder / "test.yml").write_text(yaml.safe_dump(file), encoding="utf-8")
    return promtool("test", "rules", "test.yml", folder=folder)


@pytest.mark.parametrize("words", [("check", "rules", "rules.yml"), ("test", "rules", "rules_test.yml")])
def test_the_rules_alert_with_the_right_words(words, tmp_path):
    for file in (PAGES / "rules.yml", Path(__file__).with_name("rules_test.yml")):
        shutil.copy(file, tmp_path)
    status, printed = promtool(*words, folder=tmp_path)

    assert status == 0, printed


def alerts(**counts):
    return {f'{{alertname="Gpucheck{name}"}}': number for name, number in counts.items()}


@pytest.mark.parametrize("machine", [HEALTHY, NVLINK, MEASURED, WARNED, LIBRARY, LIMITS, NO_GPU], ids=" ".join)
def test_the_linter_accepts_the_metrics(machine):
    assert promtool("check", "metrics", text=written(*machine)) == (0, "")


@pytest.mark.parametrize(
    ("machine", "soon", "later"),
    [
        (HEALTHY, {}, {}),
        (NVLINK, alerts(Failed=1), alerts(Failed=1)),
        (WARNED, {}, alerts(Warning=8)),
        (LIBRARY, alerts(Failed=1), alerts(Failed=1)),
        (NO_GPU, {}, alerts(Unknown=1)),
        (LIMITS, {}, {}),  # the job's owner has to act, not the administrator
    ],
    ids=" ".join,
)
def test_a_machine_alerts(machine, soon, later, tmp_path):
    """Soon: after one evaluation. Later: after 3 hours, when every waiting time is over and the report still fresh."""
    expected = {(FIRING, "20m"): soon, (FIRING, "3h"): later}

    assert evaluate(tmp_path, series(machine), expected) == PASSED


@pytest.mark.parametrize("machine", [NVLINK, WARNED, NO_GPU], ids=" ".join)
def test_a_simulated_machine_never_alerts(machine, tmp_path):
    inputs = series(machine, simulated=True)

    assert evaluate(tmp_path, inputs, {(FIRING, "3h"): {}, (FIRING, "12h"): {}}) == PASSED


def test_a_report_that_is_not_renewed_alerts(tmp_path):
    assert evaluate(tmp_path, series(HEALTHY), {(FIRING, "4h"): alerts(Stale=1)}) == PASSED


@pytest.mark.parametrize(("hosts", "more"), [(4, {}), (5, {"SameCauseOnManyHosts": 1})])
def test_one_cause_on_five_hosts_alerts_once_for_all(hosts, more, tmp_path):
    inputs = [one for number in range(hosts) for one in series(NVLINK, f"node{number}")]

    assert evaluate(tmp_path, inputs, {(FIRING, "20m"): alerts(Failed=hosts, **more)}) == PASSED


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_every_panel_shows_a_faulty_machine(panel, tmp_path):
    """Promtool evaluates what Grafana would send, with the host chosen and with all hosts."""
    (target,) = panel["targets"]
    labels = next(one["series"] for one in series(MEASURED) if one["series"].startswith("gpucheck_finding_status"))
    joined = {name: re.findall(f'{name}="([^"]+)"', labels)[0] for name in ("gpu", "UUID", "pci_bus_id", "Hostname")}
    dcgm = "DCGM_FI_DEV_GPU_TEMP{" + ",".join(f'{name}="{text}"' for name, text in joined.items()) + "}"
    inputs = [*series(MEASURED), {"series": dcgm, "values": f"61x{DAY}"}]
    shown = {"node07": {"{}": 1}, ".*": {"{}": 1}, "node08": {"{}": 1} if "vector(0)" in target["expr"] else {}}

    expressions = {(f"group({target['expr'].replace('$host', host)})", "20m"): found for host, found in shown.items()}
    assert evaluate(tmp_path, inputs, expressions) == PASSED
