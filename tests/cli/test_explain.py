"""gpucheck explain: every cause, check and code can be asked about."""

import re

import pytest

from gpucheck.checks import checks_of
from gpucheck.knowledge import causes
from gpucheck.knowledge.codes import rows
from gpucheck.knowledge.xid import xids


def test_every_cause_says_what_it_means_how_to_confirm_and_how_to_fix_it(explain):
    """With its source."""
    for name, cause in causes().items():
        output = explain(name)
        assert all(f"  {label} " in output for label in ("means", "confirm", "fix", "source")), name
        commands = {cause.decide, *(step.change or step.run for step in cause.steps)} - {None, ""}
        assert commands <= {line[8:].strip() for line in output.splitlines()}, name


def test_every_code_of_a_finding_is_explained(explain):
    for code, _ in rows():
        output = explain(code)
        assert output.startswith(f"{code}  (finding)\n  means "), code
        assert not re.search(r"(?<!\$)\{[a-z_]+\}", output), code


def test_a_code_has_its_steps_one_a_line_and_the_cause(explain):
    lines = explain("gpu.power-limit-lowered").splitlines()

    assert "             sudo nvidia-smi -i GPU -pl DEFAULT_W" in lines
    assert lines[-1] == "  cause    power-limit-lowered, certain (gpucheck explain power-limit-lowered)"


def test_every_check_says_what_it_asks_and_how_it_decides(explain):
    """From its own module, so that it cannot be out of step; a measuring step and its findings too."""
    for check in checks_of("quick"):
        words = " ".join(explain(check.name).split())
        assert "asks" in words, check.name
        assert "decides Source" in words, check.name
        assert f"gpucheck verify --only {check.name} -v" in words
    for name in ("p2p", "p2p-integrity", "smoke-ddp", "smoke-versions", "gpu-health"):
        assert "gpucheck verify --only" in " ".join(explain(name).split()), name
    for name, option in (("baseline", "--baseline REPORT"), ("expectations", "--expect FILE")):
        assert f"gpucheck verify {option} -v" in " ".join(explain(name).split()), name


def test_every_xid_says_what_to_do_now(explain):
    assert [code for code in xids() if "\n  now " not in explain(f"xid:{code}")] == []


def test_a_cause_says_what_it_asks_for_and_of_whom(explain):
    shown = " ".join(explain("gpu-lost").split())
    assert "action reboot: drain and reboot the host (owner: node; Slurm: drain; NVSentinel: RESTART_BM)" in shown
    assert "crossbar" in explain("sxid:23999"), "a code of a switch without a row says its unit"


def test_usual_rates_of_a_model_name_their_sources(explain):
    output = explain("normal:RTX 4090")

    assert re.search(r"^GeForce RTX 4090 +PCIe Gen4 x16, patched driver +copy +2 +20.6 to 26 +1$", output, re.MULTILINE)
    assert "tinygrad/open-gpu-kernel-modules#6" in output
    assert "H100" not in output.partition("\nGPU")[2]
    assert explain("normal").count("\n") > 60
