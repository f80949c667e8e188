"""Every fault has a name and a summary; what each does is held by the fault matrix."""

import re

import pytest

from gpucheck import simulator
from gpucheck.simulator.faults import texts, xid_line
from gpucheck.simulator.machine import UPTIME_S
from tests.simulator.helpers import write


def test_every_fault_has_a_name_of_its_own_and_a_summary():
    names = [fault.name for fault in simulator.all_faults()]

    assert len(names) == len(set(names)) > 70
    assert all(fault.summary for fault in simulator.all_faults())


def test_rejected_fault_leaves_no_machine_behind(activate, monkeypatch, tmp_path):
    """A second try must fail as the first did, not find a half-made directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        with pytest.raises(ValueError, match="width is missing"):
            activate("p100-pcie-x2", ["pcie-width:gpu=0"])

    assert list((tmp_path / "gpucheck/machines").iterdir()) == []


def test_age_and_count_place_the_lines_in_the_log(tmp_path):
    """The log is in order of time, the newest line last, as many seconds before now as it was said."""
    folder = write(tmp_path, faults=("xid:gpu=0,code=79,age=5", "xid:gpu=1,code=31,age=100,count=3"))
    log = (folder / "root/dev/kmsg").read_text().splitlines()
    heads = [line.partition(";")[0].split(",") for line in log]

    assert [sum("Xid" in line and f": {code}," in line for line in log) for code in (79, 31)] == [1, 3]
    assert "Xid (PCI:0000:04:00): 79," in log[-1]
    assert int(heads[-1][2]) == (UPTIME_S - 5) * 10**6
    assert [int(head[1]) for head in heads] == list(range(len(heads)))
    assert [int(head[2]) for head in heads] == sorted(int(head[2]) for head in heads)


def test_every_xid_has_a_line_in_the_drivers_form():
    for code in texts().xid:
        line = xid_line("0000:19:00.0", code)

        assert re.fullmatch(rf"NVRM: Xid \(PCI:0000:19:00\): {code}, \S.*", line)
        assert "{" not in line
