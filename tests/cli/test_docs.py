"""docs/verify.md, observations.md, on-screen.md and the example of a site's expectations: what they show is so."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from gpucheck import comparison
from gpucheck.diagnose.document import read as read_observations
from gpucheck.model.diagnosis.observations import Measured, Observations, ObservedHost

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "verify.md").read_text(encoding="utf-8")
EXAMPLE = DOCS / "integrations" / "expectations.yml"
COMMANDS = re.findall(r"^gpucheck verify .*$", PAGE, re.M)


def test_the_commands_of_the_page_run_one_after_the_other(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) == 2
    for command in COMMANDS:
        status, _, err = run(*shlex.split(command)[1:], "--simulate", "p100-pcie-x2")
        assert status == 0, err

    found = json.loads(Path("last.json").read_text())["findings"]
    assert [f["verdict"] for f in found if f["check"] == "baseline"] == ["pass"]


def test_the_mistake_shown_is_the_message_printed(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.yml").write_text("gpus:\n  cuont: 8\n")
    status, _, err = run("verify", "--level", "quick", "--simulate", "h200-x1", "--expect", "site.yml")

    assert status == 64
    assert err.removeprefix("Error: ") in PAGE


def test_the_machine_that_the_example_expects_meets_it(run):
    command = ("verify", "--simulate", "hgx-h100-x8", "--only", "p2p", "--expect", str(EXAMPLE), "--format", "json")
    status, out, err = run(*command)
    found = [f for f in json.loads(out)["findings"] if f["check"] == "expectations"]

    assert status == 0, err
    assert {f["verdict"] for f in found} == {"pass"}
    assert len(found) == len([k for k, v in keys(yaml.safe_load(EXAMPLE.read_text())).items() if k != "schema"])


def keys(tree, path=""):
    """Every leaf of the document by its path."""
    if not isinstance(tree, dict):
        return {path: tree}
    return {k: v for name, inner in tree.items() for k, v in keys(inner, f"{path}.{name}".lstrip(".")).items()}


def test_the_example_names_every_key():
    text = EXAMPLE.read_text(encoding="utf-8")

    stated = comparison.read(text.encode(), "example").stated
    sections = [getattr(stated, name) for name in stated.__struct_fields__ if name != "pairs"]
    assert [key for section in sections for key in section.__struct_fields__ if key not in text] == []


OBSERVATIONS = (DOCS / "observations.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```.*?```\n(.*?)```", OBSERVATIONS, re.DOTALL)


@pytest.mark.parametrize("number", range(3))
def test_each_example_gives_the_answer_shown(number, run, tmp_path):
    observations, answer = EXAMPLES[number]
    (tmp_path / "machine.yml").write_text(observations, encoding="utf-8")
    _, out, err = run("diagnose", "--observations", str(tmp_path / "machine.yml"))

    assert not err
    assert answer in out


def test_every_key_of_observations_is_on_the_page():
    assert read_observations(EXAMPLES[0][0]).gpus
    for name in (*Observations.__struct_fields__, *Measured.__struct_fields__, *ObservedHost.__struct_fields__):
        assert re.search(rf"\b{name}\b", OBSERVATIONS), name


def test_the_other_page_names_only_options_that_exist(run):
    page = (DOCS / "on-screen.md").read_text(encoding="utf-8")
    _, help_, _ = run("diagnose", "--help")
    for option in set(re.findall(r"(?<![\w-])--[a-z]+", page)):
        assert option in help_, option
