"""The answer for Slurm: a grammar of reasons, of which sinfo -R shows twenty characters."""

import re
from pathlib import Path

import pytest

from gpucheck.knowledge import causes
from gpucheck.model import Verdict
from gpucheck.render.machine.lines import MOST, REASON, reason, to_slurm
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
