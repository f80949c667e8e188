"""The Nagios line: one line, one bar, perfdata that parses, and nothing of a host's that could break it."""

import pytest

from gpucheck.model import Verdict
from gpucheck.render.machine.lines import to_nagios
from tests.render import reports


def finding(check="nvlink", subject="gpu:0000:3b:00.0", verdict=Verdict.FAIL, **fields):
    return reports.finding(check, subject, verdict, wanted=None, **fields)


def line_of(*findings, simulated=False, **fields):
    return to_nagios(reports.report(*findings, simulated=simulated, **fields))


@pytest.mark.parametrize(
    ("verdict", "state"),
    [(Verdict.PASS, "OK"), (Verdict.WARN, "WARNING"), (Verdict.FAIL, "CRITICAL"), (Verdict.UNKNOWN, "UNKNOWN")],
)
def test_the_state_is_the_one_that_the_exit_status_means(verdict, state):
    """Nagios reads the status; people read the word."""
    assert line_of(verdict=verdict).startswith(f"GPUCHECK {state} - ")


def test_the_line_names_the_worst_findings_and_counts_the_rest():
    """Three by name; what several GPUs have in common is one."""
    warning = finding(check="power-limit", verdict=Verdict.WARN)
    same = finding(subject="gpu:0000:4c:00.0", seen=0, gpu_index=3)
    line = line_of(warning, same, *(finding(subject=f"gpu:{n}", seen=n) for n in range(4)))

    assert line.startswith(
        "GPUCHECK CRITICAL - nvlink GPU 3 (0000:4c:00.0), GPU 0: 0 links (nvlink-down); nvlink GPU 1: 1 link ("
    )
    assert "and 2 more | fail=5;;0;0 warn=1;0;;0" in line


def test_an_ok_says_what_it_does_not_cover():
    """The text has it in its last line; a monitoring system shows this line only."""
    line = line_of(verdict=Verdict.PASS, not_proven=("training, torch is not installed", "x|y=1\nz"))

    assert line.startswith("GPUCHECK OK - ")
    assert r"(not proven: training, torch is not installed; x/y=1\nz) | " in line
    assert line.count("\n") == line.count("|") == 1
