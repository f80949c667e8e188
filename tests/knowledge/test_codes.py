"""The catalogue of codes and the rules that use it fit: read from both, without running a rule."""

import ast
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter

import pytest
from msgspec.structs import replace

from gpucheck.checks import all_checks
from gpucheck.checks.pcie.link import FIELDS
from gpucheck.diagnose.rules.collectives import BELOW
from gpucheck.diagnose.rules.copies import CODES
from gpucheck.knowledge import causes
from gpucheck.knowledge.causes import Advice, fix_of
from gpucheck.knowledge.codes import ANY, Subject, code_of, groups, known, of_several, reported, reporting, rows
from gpucheck.model.finding import Step, Verdict

PACKAGE = Path(__file__).parents[2] / "gpucheck"
CODE = re.compile(rf"(?:{'|'.join(groups())})\.[a-z0-9]+(?:-[a-z0-9]+)+")
VERDICTS = {"skips": Verdict.SKIP, "unknown": Verdict.UNKNOWN, "warns": Verdict.WARN, "fails": Verdict.FAIL}
BUILDERS = {*VERDICTS, "finding"}
# Parameters of the builders, which are no values.
OWN = {"seen", "wanted", "cause", "confidence", "alternatives", "action", "owner", "because_of", "others", "advice"}
OF_SUBJECT = {"gpu", "peer", "decide"}  # of its subject, and of its cause
EVERY = dict(rows())


CHECKS = {check.name: check.evaluate.__module__ for check in all_checks()}
# Where the rules of checks are.
OF_CHECKS = ("gpucheck.checks", "gpucheck.topology")
# Named by their declaration alone (gpucheck/checks/_wsl.py), or beside those of GPUs (checks/training/_words.py).
BY_DECLARATION = {code for code in EVERY if code.startswith("session.wsl-") or code.endswith("-on-cpu")}


@cache
def trees() -> dict[str, ast.Module]:
    """Every module by its name."""
    paths = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    return {name.removesuffix(".__init__"): ast.parse(path.read_text("utf-8")) for name, path in paths.items()}


def named(module: str) -> list[str]:
    """The codes that a module names, each as often as it does."""
    texts = (node.value for node in ast.walk(trees()[module]) if isinstance(node, ast.Constant))
    return [text for text in texts if isinstance(text, str) and CODE.fullmatch(text)]


@cache
def used(module: str) -> frozenset[str]:
    """The codes that a module names."""
    return frozenset(named(module))


def reached(module: str, seen: frozenset[str] = frozenset()) -> frozenset[str]:
    """The modules of the rules of a check: its own, and those that it imports."""
    for node in trees()[module].body if module not in seen else ():
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(OF_CHECKS):
            names = {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
            for name in names & trees().keys():
                seen = reached(name, seen | {module})
    return seen | {module}


def calls() -> Iterator[tuple[str, str, set[str] | None]]:
    """Every code with the builder that it is passed to and its values, None where these are not written out."""
    for tree in trees().values():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in BUILDERS):
                continue
            names = {keyword.arg or "" for keyword in node.keywords}
            for argument in node.args[:2]:
                if isinstance(argument, ast.Constant) and CODE.fullmatch(str(argument.value)):
                    yield str(argument.value), node.func.attr, None if "" in names else names - OWN


def places(code: str) -> set[str]:
    row = code_of(code)
    texts = [row.why, *(step.text for step in row.steps)]
    return {name for text in texts for _, name, _, _ in Formatter().parse(text) if name is not None}


def test_every_code_is_used_and_every_used_code_has_words():
    assert {code for module in trees() for code in used(module)} | BY_DECLARATION == EVERY.keys()


def test_a_check_declares_what_its_rules_name_and_nothing_else():
    """A finding that is not declared is an error; so is a declaration of what no rule of the check reports.

    Files without a declaration have the codes of observations, which rules beside a check report.
    """
    rules = {module for module in trees() if module.startswith(OF_CHECKS)}
    others = {code for module in trees().keys() - rules for code in used(module)} | BY_DECLARATION
    declared = {check: {code for found in reported(check).values() for code in found} for check in CHECKS}

    files = {code.partition(".")[0] for found in declared.values() for code in found}

    undeclared = {code for module in rules for code in used(module) if not reporting(code)}
    assert {code for code in undeclared if code.partition(".")[0] in files} == set()
    assert {check for code in EVERY for check, _ in reporting(code)} == {ANY, *CHECKS}
    for check, module in CHECKS.items():
        assert declared[check] - {code for name in reached(module) for code in used(name)} <= others, check


def test_a_check_declares_the_verdict_with_which_it_reports_a_code():
    reports: dict[str, set[Verdict]] = {}
    written, passed = Counter(code for module in trees() for code in named(module)), Counter[str]()
    for code, builder, _ in calls():
        passed[code] += 1
        reports.setdefault(code, set()).update({VERDICTS[builder]} if builder in VERDICTS else {*Verdict})
    for code in reports:
        if written[code] > passed[code]:  # also passed by a variable
            reports[code] = {*Verdict}
    declared = {code: {verdict for _, verdict in found} for code in EVERY if (found := reporting(code))}

    assert {code for code in declared.keys() & reports.keys() if not declared[code] <= reports[code]} == set()
    assert {code for code in declared.keys() & reports.keys() if {*Verdict} > reports[code] > declared[code]} == set()


def test_a_finding_that_is_not_declared_is_an_error():
    """Of another check, of another verdict, with another cause."""
    subject = Subject(check="mig", name="gpu:0000:4c:00.0")

    assert subject.warns("gpu.mig-enabled", 1).cause == "mig-enabled"
    other = (("bar1", "warn", "mig-enabled"), ("mig", "fail", "mig-enabled"), ("mig", "warn", "xid"))
    for check, verdict, cause in other:
        with pytest.raises(ValueError, match="does not declare"):
            replace(subject, check=check).finding(Verdict(verdict), "gpu.mig-enabled", cause=cause)


def test_a_rule_passes_the_values_that_its_sentences_need():
    missing = {code: sorted(places(code) - names - OF_SUBJECT) for code, _, names in calls() if names is not None}

    assert {code: names for code, names in missing.items() if names} == {}


@pytest.mark.parametrize(
    ("codes", "values"),
    [
        (BELOW.values(), {"collective", "basis"}),
        ((with_cause for with_cause, _ in CODES.values()), {"basis", "suspect"}),
        ((without for _, without in CODES.values()), {"basis"}),
        ((code for row in FIELDS.values() for code in row[1:]), {"now", "limit"}),
    ],
)
def test_a_rule_that_chooses_a_code_by_a_table_passes_the_values_of_every_row(codes, values):
    assert {code: places(code) - values - OF_SUBJECT for code in codes if places(code) - values - OF_SUBJECT} == {}


@pytest.mark.parametrize("code", EVERY)
def test_words_of_a_code(code):
    """Its name has two words or more, its cause exists, and a step does not end like a sentence."""
    row = code_of(code)

    assert CODE.fullmatch(code)
    assert {row.cause, *row.or_causes} - {None} <= causes().keys()
    for step in row.steps:
        assert not step.text.endswith((";", "."))


def lowered():
    gpu = Subject(check="power-limit", name="gpu:0000:4c:00.0", unit="W")
    return gpu.warns("gpu.power-limit-lowered", 300.0, 400.0, percent=75, default_w=400.0)


def test_a_finding_has_the_words_of_its_code_and_its_values():
    finding = lowered()

    assert finding.values == {"percent": 75, "default_w": 400.0}
    assert finding.cause == "power-limit-lowered"
    assert finding.confidence == "certain"
    assert "75 %" in finding.why
    assert finding.steps[-1] == Step(command="sudo nvidia-smi -i 0000:4c:00.0 -pl 400", changes=True)
    assert finding.fix == fix_of(finding.steps)


@pytest.mark.parametrize(
    ("cause", "command"),
    [("pcie-link-downgraded", "nvidia-smi -q -d PCIE"), ("false-p2p-grant", "gpucheck explain false-p2p-grant")],
)
def test_a_suspected_cause_is_confirmed_by_its_own_command(cause, command):
    """Without one, its description says how."""
    subject = Subject(check="staged-copies", name="gpus:0000:01:00.0,0000:02:00.0")

    finding = subject.unknown("copies.staged-slow", 6, cause=cause, basis="PCIe", suspect=cause)

    assert finding.steps[1] == Step(command=command, changes=False)
    assert of_several(finding, ["0", "1"], every_gpu=True)[1] == finding.steps


def test_several_gpus_have_one_text():
    _, two = of_several(lowered(), ["0", "1"], every_gpu=False)
    _, all_gpus = of_several(lowered(), ["0", "1"], every_gpu=True)

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
    finding = Subject(check="power-limit").warns("gpu.power-limit-lowered", 1, percent=1, default_w=1.0, gpu=text)

    assert shlex.split(finding.steps[-1].command or "")[3] == text


def test_a_code_of_another_version_keeps_the_words_of_its_report():
    other = replace(lowered(), code="gpu.not-known-here")

    assert not known(other.code)
    assert of_several(other, ["0", "1"], every_gpu=False) == (lowered().why, lowered().steps)
