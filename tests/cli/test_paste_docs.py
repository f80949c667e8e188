"""docs/observations.md and docs/on-screen.md: what they show is what is printed, and no key is missing."""

import re
from pathlib import Path

import pytest

from gpucheck.diagnose.document import read as read_observations
from gpucheck.model.diagnosis.observations import Measured, Observations, ObservedHost

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "observations.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```.*?```\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(3))
def test_each_example_gives_the_answer_shown(number, run, tmp_path):
    observations, answer = EXAMPLES[number]
    (tmp_path / "machine.yml").write_text(observations, encoding="utf-8")
    _, out, err = run("diagnose", "--observations", str(tmp_path / "machine.yml"))

    assert not err
    assert answer in out


def test_every_key_is_on_the_page():
    assert read_observations(EXAMPLES[0][0]).gpus
    for name in (*Observations.__struct_fields__, *Measured.__struct_fields__, *ObservedHost.__struct_fields__):
        assert re.search(rf"\b{name}\b", PAGE), name


def test_the_other_page_names_only_options_that_exist(run):
    page = (DOCS / "on-screen.md").read_text(encoding="utf-8")
    _, help_, _ = run("diagnose", "--help")
    for option in set(re.findall(r"(?<![\w-])--[a-z]+", page)):
        assert option in help_, option
