"""gpucheck explain: every cause, check and code can be asked about."""

import re

import pytest

from gpucheck.checks import all_checks
from gpucheck.knowledge import causes
from gpucheck.knowledge.codes import rows
from gpucheck.knowledge.xid import xids


@pytest.mark.parametrize("cause", sorted(causes()))
def test_every_cause_says_what_it_means_how_to_confirm_and_how_to_fix_it(explain, cause):
    """With its source."""
    output = explain(cause)

    assert all(f"  {label} " in output for label in ("means", "confirm", "fix", "source"))
    commands = [causes()[cause].decide, *(step.change or step.run for step in causes()[cause].steps)]
    assert {command for command in commands if command} <= {line[8:].strip() for line in output.splitlines()}


@pytest.mark.parametrize("code", [code for code, _ in rows()])
def test_every_code_of_a_finding_is_explained(explain, code):
    output = explain(code)

    assert output.startswith(f"{code}  (finding)\n  means ")
    assert not re.search(r"(?<!\$)\{[a-z_]+\}", output)


def test_a_code_has_its_steps_one_a_line_and_the_cause(explain):
    lines = explain("gpu.power-limit-lowered").splitlines()

    assert "             sudo nvidia-smi -i GPU -pl DEFAULT_W" in lines
    assert lines[-1] == "  cause    power-limit-lowered, certain (gpucheck explain power-limit-lowered)"
    assert "reseat the card" in explain("comparison.pcie-repeats")


@pytest.mark.parametrize("check", [check.name for check in all_checks()])
def test_every_check_says_what_it_asks_and_how_it_decides(explain, check):
    """From its own module, so that it cannot be out of step."""
    words = " ".join(explain(check).split())

    assert "asks" in words
    assert "decides Source" in words
    assert f"gpucheck verify --only {check} -v" in words


@pytest.mark.parametrize("name", ["p2p", "p2p-integrity", "smoke-ddp", "smoke-versions", "gpu-health"])
def test_a_measuring_step_and_its_findings_are_explained_too(explain, name):
    assert "asks" in explain(name)
    assert "gpucheck verify --only" in " ".join(explain(name).split())


@pytest.mark.parametrize(("name", "option"), [("baseline", "--baseline REPORT"), ("expectations", "--expect FILE")])
def test_what_a_report_is_held_against_is_explained_with_its_option(explain, name, option):
    assert f"gpucheck verify {option} -v" in " ".join(explain(name).split())


@pytest.mark.parametrize("code", sorted(xids()))
def test_every_code_says_what_to_do(explain, code):
    """First of all."""
    assert "\n  now " in explain(f"xid:{code}")


@pytest.mark.parametrize("what", ["sxid:20034", "20034", "sxid20034"])
def test_an_sxid_is_explained(explain, what):
    output = explain(what)

    assert "SXid 20034" in output
    assert "FAIL" in output


def test_a_code_of_a_switch_without_a_row_says_its_unit(explain):
    assert "crossbar" in explain("sxid:23999")


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("acs-redirct", "Did you mean acs-redirect"),
        ("kernel-lgo", "Did you mean kernel-log"),
        ("gpu.power-limit-lowerd", "Did you mean gpu.power-limit-lowered"),
        ("xid:12345", "xid:12345: not in the table"),
        ("xid:", "not in the table"),
        ("xid:\u00b2", "not in the table"),
        ("sxid:99", "sxid:99: not in the table"),
        ("nonsense", "unknown cause, check"),
    ],
)
def test_what_is_not_known_is_one_message(refused, what, says):
    assert says in refused(what)


def test_a_cause_says_what_it_asks_for_and_of_whom(explain):
    shown = " ".join(explain("gpu-lost").split())
    assert "action reboot: drain and reboot the host (owner: node; Slurm: drain; NVSentinel: RESTART_BM)" in shown
    shown = " ".join(explain("shm-too-small").split())
    assert "(owner: user; Slurm: nothing; NVSentinel: NONE)" in shown


def test_usual_rates_of_a_model_name_their_sources(explain):
    output = explain("normal:RTX 4090")

    assert re.search(r"^GeForce RTX 4090 +PCIe Gen4 x16, patched driver +copy +2 +20.6 to 26 +1$", output, re.MULTILINE)
    assert "tinygrad/open-gpu-kernel-modules#6" in output
    assert "H100" not in output.partition("\nGPU")[2]
    assert explain("normal").count("\n") > 60


@pytest.mark.parametrize(
    ("model", "said"), [("H10O", "Did you mean NVIDIA H100"), ("Tesla T4", "no public measurement")]
)
def test_a_model_without_usual_rates_is_wrong_usage(run, model, said):
    status, out, err = run("explain", f"normal:{model}")

    assert (status, out) == (64, "")
    assert said in err
