"""Lines for Slurm, a grammar of reasons of which sinfo -R shows twenty characters, and the line for Nagios.

The latter: one line, one bar, perfdata that parses, and nothing of a host's that could break it.
"""

import re
from pathlib import Path

import pytest

from gpucheck.knowledge import causes
from gpucheck.model import Verdict
from gpucheck.render.machine.lines import MOST, REASON, reason, to_nagios, to_slurm
from tests.render.reports import finding, healthy, hostile, report, sick

PAGE = Path(__file__).parents[3] / "docs" / "integrations" / "slurm" / "README.md"
SHOWN = 20
LINE = re.compile(rf"(fail|warn|unknown) (node|user|site) [a-z-]+ {REASON.pattern}")


def test_twenty_characters_tell_every_cause_apart():
    shown = {f"gpucheck:{name}"[:SHOWN] for name in causes()}

    assert len(shown) == len(causes())


def test_a_reason_has_the_gpus_the_numbers_and_the_action():
    one = finding(gpu_index=2, action="reset-gpu", owner="node")
    more = finding(gpu_index=3, action="reset-gpu", owner="node")

    assert reason((one,), simulated=False) == "gpucheck:nvlink-down g2 17/18 reset-gpu"
    assert reason((one, more), simulated=True) == "gpucheck:nvlink-down g2-3 17/18 reset-gpu SIMULATED"
    assert REASON.fullmatch(reason((one, more), simulated=True))["gpus"] == "2-3"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"cause": None}, "gpucheck:nvlink 17/18 none"),
        ({"seen": "17 links"}, "gpucheck:nvlink-down none"),
        ({"seen": True, "wanted": False}, "gpucheck:nvlink-down none"),
        ({"seen": float("nan")}, "gpucheck:nvlink-down none"),
        ({"seen": 0.45, "wanted": 24.9}, "gpucheck:nvlink-down 0.45/24.9 none"),
        ({"gpu_index": 0, "peer_index": 5}, "gpucheck:nvlink-down g0,5 17/18 none"),
        ({"cause": "of a host; \x1b[2J"}, "gpucheck:of-a-host-2j 17/18 none"),
    ],
)
def test_what_is_not_known_is_left_out(fields, told):
    found = reason((finding(**fields),), simulated=False)

    assert found == told
    assert REASON.fullmatch(found)


@pytest.mark.parametrize("made", [sick(), sick(72), hostile(), healthy(), report()], ids=range(5))
def test_every_line_is_of_the_grammar(made):
    first, *lines, end, after = to_slurm(made).split("\n")

    assert first == f"gpucheck.slurm/1 {made.verdict.value} {len(lines)}"
    assert (end, after) == ("end", "")
    assert len(lines) <= MOST
    assert all(LINE.fullmatch(line) and len(line) <= 200 for line in lines)


def test_a_simulated_machine_says_so_in_every_reason():
    lines = to_slurm(report(finding(), finding(check="pcie-link"), simulated=True)).splitlines()[1:-1]

    assert lines
    assert all(line.endswith(" SIMULATED") for line in lines)


def test_the_worst_come_first_and_passes_are_no_reason():
    warned = finding(verdict=Verdict.WARN, cause="pcie-errors")
    passed = finding(verdict=Verdict.PASS)

    assert [line.split()[0] for line in to_slurm(report(passed, warned, finding())).splitlines()[1:-1]] == [
        "fail",
        "warn",
    ]


def test_the_page_has_the_grammar():
    assert f"    {REASON.pattern}" in PAGE.read_text(encoding="utf-8")


def line_of(*findings, simulated=False, **fields):
    return to_nagios(report(*findings, simulated=simulated, **fields))


@pytest.mark.parametrize(
    ("verdict", "state"),
    [(Verdict.PASS, "OK"), (Verdict.WARN, "WARNING"), (Verdict.FAIL, "CRITICAL"), (Verdict.UNKNOWN, "UNKNOWN")],
)
def test_the_state_is_the_one_that_the_exit_status_means(verdict, state):
    """Nagios reads the status; people read the word."""
    assert line_of(verdict=verdict).startswith(f"GPUCHECK {state} - ")


def test_the_line_names_the_worst_findings_and_counts_the_rest():
    """Three by name; what several GPUs have in common is one."""
    warning = finding("power-limit", verdict=Verdict.WARN, wanted=None)
    same = finding(subject="gpu:0000:4c:00.0", seen=0, wanted=None, gpu_index=3)
    line = line_of(warning, same, *(finding(subject=f"gpu:{n}", seen=n, wanted=None) for n in range(4)))

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
