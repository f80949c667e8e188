"""The workflows follow GitHub's schema, call targets that exist, and run nothing that a stranger wrote as a program."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TOP = Path(__file__).parents[2]
FILES = sorted((TOP / ".github/workflows").glob("*.yml"))


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def file(request):
    return request.param


def steps(file):
    return [step for job in yaml.safe_load(file.read_text())["jobs"].values() for step in job["steps"]]


def test_there_is_one_for_each_task():
    assert [path.stem for path in FILES] == ["images", "lint", "nightly", "release", "test"]


@pytest.mark.parametrize("schema", ["vendor.github-workflows", "custom.github-workflows-require-timeout"])
def test_a_workflow_follows_the_schema(file, schema):
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_a_workflow_calls_targets_of_the_makefile(file):
    makefile = (TOP / "Makefile").read_text()
    targets = [name for step in steps(file) for name in re.findall(r"^make ([\w-]+)", step.get("run", ""))]

    assert targets
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in targets)


def test_an_action_is_pinned_and_no_text_of_an_event_is_a_program(file):
    text, document = file.read_text(), yaml.safe_load(file.read_text())

    assert re.findall(r"uses: (\S+)", text) == re.findall(r"uses: ([\w-]+/[\w-]+@[0-9a-f]{40}) # v\d", text)
    assert not [step for step in steps(file) if "${{" in step.get("run", "")]
    assert "pull_request_target" not in text
    assert document["permissions"] == {"contents": "read"}
    # No token stays in the checkout.
    checkouts = [step for step in steps(file) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step.get("with", {}).get("persist-credentials") is False for step in checkouts)
