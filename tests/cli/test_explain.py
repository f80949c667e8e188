"""gpucheck explain: every cause, check and code can be asked about."""

import click
import pytest
from click.testing import CliRunner

from gpucheck.checks import all_checks
from gpucheck.cli import cli
from gpucheck.diagnose.hypotheses import Hypothesis
from gpucheck.knowledge import causes
from gpucheck.knowledge.xid import xids


def explain(what):
    return CliRunner().invoke(cli, ["explain", what])


@pytest.mark.parametrize("cause", sorted(causes()))
def test_every_cause_says_what_it_means_how_to_confirm_and_how_to_fix_it(cause):
    """With its source."""
    result = explain(cause)

    assert result.exit_code == 0
    assert all(f"  {label} " in result.output for label in ("means", "confirm", "fix", "source"))


def test_a_cause_says_how_a_diagnosis_weighs_it(monkeypatch):
    one = Hypothesis(
        name="narrow-link", causes=("pcie-width-reduced",), title="Lanes that are missing",
        possible_when="a GPU has a PCIe link", predicts="copies with it at the reduced width", prior="1 in 100",
        never_explains="NVLink", sources=("jan#183", "a manual"), instances=lambda machine: iter(()),
    )  # fmt: skip
    monkeypatch.setattr("gpucheck.diagnose.hypotheses.all_hypotheses", lambda: (one,))
    text = explain("pcie-width-reduced").output

    assert "In a diagnosis: Lanes that are missing\n  possible when  a GPU has a PCIe link\n" in text
    assert [line[2:16].strip() for line in text.split("\n")[-6:-1]] == [
        "possible when", "predicts", "prior", "never explains", "sources",
    ]  # fmt: skip
    assert "In a diagnosis" not in explain("acs-redirect").output


@pytest.mark.parametrize("check", [check.name for check in all_checks()])
def test_every_check_says_what_it_asks_and_how_it_decides(check):
    """From its own module, so that it cannot be out of step."""
    result = explain(check)

    assert result.exit_code == 0
    words = " ".join(result.output.split())
    assert "asks" in words
    assert "decides Source" in words
    assert f"gpucheck verify --only {check} -v" in words


@pytest.mark.parametrize("name", ["p2p", "p2p-integrity", "smoke-ddp", "smoke-versions", "gpu-health"])
def test_a_measuring_step_and_its_findings_are_explained_too(name):
    assert "asks" in explain(name).output
    assert "gpucheck verify --only" in " ".join(explain(name).output.split())


@pytest.mark.parametrize(("name", "option"), [("baseline", "--baseline REPORT"), ("expectations", "--expect FILE")])
def test_what_a_report_is_held_against_is_explained_with_its_option(name, option):
    assert f"gpucheck verify {option} -v" in " ".join(explain(name).output.split())


@pytest.mark.parametrize("code", sorted(xids()))
def test_every_code_says_what_to_do(code):
    """First of all."""
    result = explain(f"xid:{code}")

    assert result.exit_code == 0
    assert "\n  now " in result.output


@pytest.mark.parametrize("what", ["xid:79", "79", "xid79", "Xid 79"])
def test_an_xid_may_be_written_as_people_write_it(what):
    assert "GPU has fallen off the bus" in explain(what).output


@pytest.mark.parametrize("what", ["sxid:20034", "20034", "sxid20034"])
def test_an_sxid_is_explained(what):
    result = explain(what)

    assert result.exit_code == 0
    assert "SXid 20034" in result.output
    assert "FAIL" in result.output


def test_a_code_of_a_switch_without_a_row_says_its_unit():
    assert "crossbar" in explain("sxid:23999").output


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("acs-redirct", "Did you mean acs-redirect"),
        ("kernel-lgo", "Did you mean kernel-log"),
        ("xid:12345", "xid:12345: not in the table"),
        ("xid:", "not in the table"),
        ("xid:\u00b2", "not in the table"),
        ("sxid:99", "sxid:99: not in the table"),
        ("nonsense", "unknown cause, check"),
    ],
)
def test_what_is_not_known_is_one_message(what, says):
    """Wrong usage."""
    with pytest.raises(click.ClickException) as problem:
        cli.main(["explain", what], standalone_mode=False)

    assert says in problem.value.message
    assert problem.value.exit_code == 64


def test_a_cause_says_what_it_asks_for_and_of_whom():
    shown = " ".join(explain("gpu-lost").output.split())
    assert "action reboot: drain and reboot the host (owner: node; Slurm: drain; NVSentinel: RESTART_BM)" in shown
    shown = " ".join(explain("shm-too-small").output.split())
    assert "(owner: user; Slurm: nothing; NVSentinel: NONE)" in shown
