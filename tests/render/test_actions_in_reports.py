"""Action and owner of a finding in every form that shows them, and in every command that writes JSON."""

import json

import click
import pytest

from gpucheck.knowledge.causes import ACTIONS
from gpucheck.model import Verdict
from gpucheck.render import formats
from tests.forked import gpucheck
from tests.render.reports import finding, report

ASKED = {"action": "reset-gpu", "owner": "node"}
NARROW = ("--simulate", "p100-pcie-x2", "--fault", "pcie-width:gpu=1,width=8")


def told(format_, **fields):
    return click.unstyle(formats.render(report(finding(**{**ASKED, **fields})), format_))


@pytest.mark.parametrize(
    ("format_", "words"),
    [
        ("text", "        action    reset-gpu (owner: node)\n"),
        ("html", "<dt>action</dt><dd>reset-gpu (owner: node)</dd>"),
        ("junit", "action: reset-gpu (owner: node)"),
    ],
)
def test_what_is_asked_and_of_whom_is_shown(format_, words):
    assert words in told(format_)


@pytest.mark.parametrize("format_", ["text", "html", "junit"])
@pytest.mark.parametrize("fields", [{"action": "none"}, {"action": None}, {"verdict": Verdict.PASS, "action": "none"}])
def test_nothing_is_shown_where_nothing_is_to_be_done(format_, fields):
    found = told(format_, **fields)
    assert "owner:" not in found
    assert "<dt>action" not in found


def test_people_are_shown_steps_where_the_action_of_programs_is_support():
    assert ["owner:" in told(format_, action="contact-support") for format_ in ("text", "html", "junit")] == [0, 0, 1]


def findings(value):
    """Every finding anywhere in a document."""
    if isinstance(value, dict):
        if {"check", "verdict", "subject"} <= value.keys():
            yield value
        for inner in value.values():
            yield from findings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from findings(inner)


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        (("verify", "--level", "quick", *NARROW), {("pcie-width-reduced", "contact-support", "site")}),
        (("topo", *NARROW), {("pcie-width-reduced", "contact-support", "site")}),
        (("diagnose", "-"), {("gpu-lost", "reboot", "node")}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_every_finding_of_every_command_has_both(command, wrong):
    log = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
    done = gpucheck(*command, "--format", "json", given=log.encode())
    found = list(findings(json.loads(done.stdout)))

    assert found
    assert {one["action"] for one in found} <= set(ACTIONS)
    assert {one["owner"] for one in found} <= {"node", "user", "site"}
    bad = {(f["cause"], f["action"], f["owner"]) for f in found if f["verdict"] in ("fail", "warn") and f["cause"]}
    assert wrong <= bad
