"""The catalogue of codes and the rules that use it fit: read from both, without running a rule."""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter

import pytest
from msgspec.structs import replace

from gpucheck.knowledge import causes
from gpucheck.knowledge.advice import Advice, fix_of
from gpucheck.knowledge.codes import Subject, code_of, groups, known, of_several, rows
from gpucheck.model.finding import Step
from gpucheck.model.finding.verdict import Verdict

PACKAGE = Path(__file__).parents[2] / "gpucheck"
CODE = re.compile(rf"(?:{'|'.join(groups())})\.[a-z0-9]+(?:-[a-z0-9]+)+")
BUILDERS = {"skips", "unknown", "warns", "fails", "finding"}
# Parameters of the builders, which are no values.
OWN = {"seen", "wanted", "cause", "confidence", "alternatives", "action", "owner", "because_of", "others", "advice"}
OF_SUBJECT = {"gpu", "peer"}
EVERY = dict(rows())


@cache
def trees() -> tuple[ast.Module, ...]:
    return tuple(ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py")))


def used() -> Iterator[str]:
    """Every code that a source names."""
    for tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
                yield node.value


def calls() -> Iterator[tuple[str, set[str]]]:
    """Every code with the names of the values that its call passes, where both are written out."""
    for tree in trees():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in BUILDERS):
                continue
            if any(keyword.arg is None for keyword in node.keywords):
                continue
            names = {keyword.arg or "" for keyword in node.keywords} - OWN
            for argument in node.args[:2]:
                if isinstance(argument, ast.Constant) and CODE.fullmatch(str(argument.value)):
                    yield str(argument.value), names


def places(code: str) -> set[str]:
    row = code_of(code)
    texts = [row.why, *(step.text for step in row.steps)]
    return {name for text in texts for _, name, _, _ in Formatter().parse(text) if name is not None}


def test_every_code_is_used_and_every_used_code_has_words():
    assert set(used()) == EVERY.keys()


def test_a_rule_passes_the_values_that_its_sentences_need():
    missing = {code: sorted(places(code) - names - OF_SUBJECT) for code, names in calls()}

    assert {code: names for code, names in missing.items() if names} == {}


@pytest.mark.parametrize("code", EVERY)
def test_words_of_a_code(code):
    """Its name has two words or more, its cause exists, and a step does not end like a sentence."""
    row = code_of(code)

    assert CODE.fullmatch(code)
    assert row.cause is None or row.cause in causes()
    for step in row.steps:
        assert not step.text.endswith((";", "."))


def test_a_finding_has_the_words_of_its_code_and_its_values():
    gpu = Subject(check="power-limit", name="gpu:0000:4c:00.0", unit="W")

    finding = gpu.warns("gpu.power-limit-lowered", 300.0, 400.0, percent=75, default_w=400.0)

    assert finding.values == {"percent": 75, "default_w": 400.0}
    assert finding.cause == "power-limit-lowered"
    assert finding.confidence == "certain"
    assert "75 %" in finding.why
    assert finding.steps[-1] == Step(command="sudo nvidia-smi -i 0000:4c:00.0 -pl 400", changes=True)
    assert finding.fix == fix_of(finding.steps)


def test_several_gpus_have_one_text():
    gpu = Subject(check="power-limit", name="gpu:0000:4c:00.0", unit="W")
    finding = gpu.warns("gpu.power-limit-lowered", 300.0, 400.0, percent=75, default_w=400.0)

    _, two = of_several(finding, ["0", "1"], every_gpu=False)
    _, all_gpus = of_several(finding, ["0", "1"], every_gpu=True)

    assert two[-1].command == "sudo nvidia-smi -i 0,1 -pl 400"
    assert all_gpus[-1].command == "sudo nvidia-smi -pl 400"


def test_steps_of_a_tables_row_are_kept_for_several_gpus():
    """They come after those of the code, and before those of the cause."""
    gpu = Subject(check="nvidia-smi", name="gpu:0000:4c:00.0")
    advice = (Advice(run="nvidia-smi -q"),)
    values = {"message": "nvidia-smi.gpu-lost", "meaning": "the GPU does not respond"}

    finding = gpu.fails("message.known-line", 1, cause="gpu-lost", advice=advice, **values)

    assert finding.steps[0] == Step(command="nvidia-smi -q", changes=False)
    assert len(finding.steps) == 1 + len(causes()["gpu-lost"].steps)
    assert of_several(finding, ["0", "1"], every_gpu=False) == (finding.why, finding.steps)


@pytest.mark.parametrize("text", ["a; rm -rf /", "$(reboot)", "", "two words"])
def test_a_value_stays_one_word_of_a_command(text):
    """A host's text in a command that is pasted into a shell cannot become a second command."""
    finding = Subject(check="x").fails("gpu.power-limit-lowered", 1, percent=1, default_w=1.0, gpu=text)

    assert shlex.split(finding.steps[-1].command or "")[3] == text


def test_a_code_of_another_version_keeps_the_words_of_its_report():
    finding = Subject(check="x", name="gpu:0000:4c:00.0").warns(
        "gpu.power-limit-lowered", 300.0, 400.0, percent=75, default_w=400.0
    )
    other = replace(finding, code="gpu.not-known-here")

    assert not known(other.code)
    assert of_several(other, ["0", "1"], every_gpu=False) == (finding.why, finding.steps)
    assert other.verdict is Verdict.WARN
