"""docs/integrations/prometheus: rules and dashboard read metrics that gpucheck writes; the dashboard is valid."""

import json
import re
from itertools import combinations
from pathlib import Path

import jsonschema
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from gpucheck.render.machine.prometheus import to_prometheus
from tests.render.reports import finding, healthy, report, sick

PAGES = Path(__file__).parents[2] / "docs" / "integrations" / "prometheus"
RULES = yaml.safe_load((PAGES / "rules.yml").read_text(encoding="utf-8"))
DASHBOARD = json.loads((PAGES / "dashboard.json").read_text(encoding="utf-8"))
SCHEMAS = json.loads((Path(__file__).parents[1] / "data/grafana/schemas.json").read_text(encoding="utf-8"))
DCGM = {"DCGM_FI_DEV_GPU_TEMP"}
PANELS = {"stat", "table", "bargauge", "state-timeline", "timeseries"}
UNITS = {"short", "s", "percentunit", "celsius"}


def written():
    """Metric -> labels, over reports that have all of them."""
    found = {}
    for made in (sick(), healthy(), report(finding())):
        for family in text_string_to_metric_families(to_prometheus(made)):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


METRICS = written()
RECORDED = {rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule}


def rules():
    return [rule for group in RULES["groups"] for rule in group["rules"]]


EXPRESSIONS = [rule["expr"] for rule in rules()]
EXPRESSIONS += [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_only_metrics_and_labels_that_are_written_are_read(expression):
    """Of hosts that are not simulated."""
    read = set(re.findall(r"\b(?:gpucheck_\w+|gpucheck:[\w:]+|DCGM_\w+)", expression))
    known = set().union(*METRICS.values()) | {"simulated", "verdict", "status"}
    matched = set(re.findall(r"(\w+)(?:!=|=~|=)\"", expression))
    grouped = {name for names in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for name in names.split(", ")}

    assert read
    assert read <= METRICS.keys() | RECORDED | DCGM
    assert matched | grouped <= known
    assert 'simulated!="true"' in expression or not [name for name in read if name.startswith("gpucheck_")]


def test_every_alert_has_a_severity_a_summary_and_what_to_do():
    alerts = [rule for rule in rules() if "alert" in rule]

    assert len({alert["alert"] for alert in alerts}) == len(alerts) == 5
    for alert in alerts:
        assert alert["labels"]["severity"] in ("warning", "critical")
        assert alert["annotations"].keys() == {"summary", "description"}


def grafana_rejects(name, value):
    schema = SCHEMAS[name]
    return [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(value)]


def test_the_dashboard_follows_the_schemas_of_grafana():
    """They allow no unknown key, and demand every option of a panel."""
    assert grafana_rejects("dashboard", DASHBOARD) == []
    for panel in DASHBOARD["panels"]:
        assert grafana_rejects(panel["type"].replace("-", ""), panel["options"]) == []
        assert [grafana_rejects("prometheus", target) for target in panel["targets"]] == [[]]


def test_the_dashboard_is_one_that_grafana_imports():
    """The keys of Grafana's dashboard model that a panel needs, and no two panels in one place."""
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= DASHBOARD.keys()
    assert "id" not in DASHBOARD  # Grafana gives it
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["type"] in PANELS
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        place = panel["gridPos"]
        assert place.keys() == {"x", "y", "w", "h"}
        assert place["x"] + place["w"] <= 24
        assert [target["refId"] for target in panel["targets"]] == ["A"]
    for one, other in combinations((panel["gridPos"] for panel in panels), 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]


def test_the_dashboard_has_every_variable_that_it_reads():
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"]))) - {"__all"}

    assert used == variables == {"datasource", "host"}


def test_every_verdict_has_a_word_and_a_colour():
    mapped = [panel["fieldConfig"]["defaults"]["mappings"] for panel in DASHBOARD["panels"]]
    (options, *_) = (mapping[0]["options"] for mapping in mapped if mapping)

    assert [options[str(number)]["text"] for number in range(4)] == ["PASS", "WARN", "FAIL", "UNKNOWN"]
