"""Reports of sessions with some of the GPUs: marked, and never in place of a complete report of the host."""

import click
import msgspec
import pytest

from gpucheck.fleet import merge, rows_of
from gpucheck.model import Partial, TopologyGpu, Verdict
from gpucheck.render.fleet import render
from tests.fleet.reports import GOOD, bad, report, rows, topology

NOON, LATER = "2026-11-21T12:00:00+00:00", "2026-11-21T13:00:00+00:00"
BUS_IDS = tuple(f"0000:{n:02x}:00.0" for n in range(4))


def one(started, *gpus, findings=(GOOD,), source="node07.json"):
    """A row of node07 with these GPUs of four."""
    hidden = tuple(bus_id for n, bus_id in enumerate(BUS_IDS) if n not in gpus)
    share = Partial(usable=tuple(BUS_IDS[n] for n in gpus), hidden=hidden, by="device-cgroup") if hidden else None
    nodes = tuple(TopologyGpu(index=i, name="H100", pci_bus_id=BUS_IDS[n], uuid=f"GPU-{n}") for i, n in enumerate(gpus))
    shape = msgspec.structs.replace(topology(len(gpus)), gpus=nodes)
    made = report("node07", started=started, topology=shape, findings=findings, partial=share)
    (row,) = rows_of(msgspec.json.encode(made), source)
    return row


def merged(*rows):
    """In either order, for the order of files decides nothing."""
    fleet = merge(rows)
    assert merge(reversed(rows)) == fleet
    return fleet


@pytest.mark.parametrize("when", [(NOON, LATER), (LATER, NOON), (NOON, NOON)])
def test_a_complete_report_counts_whichever_is_newer(when):
    fleet = merged(one(when[0], 0, 1, 2, 3), one(when[1], 1, 2))
    (host,) = fleet.hosts

    assert (host.gpu_count, host.partial, host.verdict) == (4, False, Verdict.PASS)
    (listed,) = fleet.problems
    assert (listed.kind, "covers some GPUs only" in listed.text) == ("duplicate", True)


@pytest.mark.parametrize(("started", "verdict"), [(LATER, Verdict.FAIL), ("2026-11-21T11:00:00+00:00", Verdict.PASS)])
def test_a_newer_fault_of_a_session_is_not_lost(started, verdict):
    fleet = merged(one(NOON, 0, 1, 2, 3), one(started, 1, 2, findings=(bad(),)))

    assert (fleet.hosts[0].gpu_count, fleet.hosts[0].verdict) == (4, verdict)


def test_two_sessions_of_one_host_are_one_host():
    """They have no GPU in common, as reports of two machines have; a fault that only the older one could see counts."""
    fleet = merged(one(NOON, 0, 1, findings=(bad(),)), one(LATER, 2, 3))
    (host,) = fleet.hosts

    assert (host.partial, host.verdict) == (True, Verdict.FAIL)
    assert {problem.kind for problem in fleet.problems} == {"partial", "conflict"}


FEW = ("everything except locked-memory, excluded by --only", "processes, excluded by --skip")


@pytest.mark.parametrize("few_fails", [False, True])
def test_a_newer_report_of_a_few_checks_replaces_no_whole_one(few_fails):
    whole = report("a", started=NOON, findings=(GOOD if few_fails else bad(),))
    few = report("a", started=LATER, findings=(bad("locked-memory") if few_fails else GOOD,), not_proven=FEW)
    fleet = merged(*rows(whole, few))

    assert [host.verdict for host in fleet.hosts] == [Verdict.FAIL]
    (problem,) = fleet.problems
    assert problem.kind == ("conflict" if few_fails else "duplicate")
    assert "is of a few checks only" in problem.text


def test_a_report_of_a_few_checks_is_marked():
    """It passes as that of a host that was verified; what --skip left out is the choice of a whole site."""
    few, site = (report(host, not_proven=proven) for host, proven in (("a", FEW), ("b", FEW[1:])))
    (problem,) = merged(*rows(few, site, report("c"))).problems

    assert (problem.kind, problem.subject) == ("partial", "a")
    assert "does not prove everything except locked-memory, excluded by --only" in problem.text


def test_a_host_with_partial_reports_only_is_marked():
    fleet = merged(one(NOON, 1, 2))

    assert fleet.hosts[0].gpus == "2 x H100 (partial, host has 4)"
    text = click.unstyle(render(fleet, "text"))
    assert "2 x H100 (partial, host has 4)" in text
    assert "run verify outside jobs and containers" in text


def test_a_session_without_a_gpu_is_a_row():
    (host,) = merged(one(NOON)).hosts

    assert (host.gpus, host.partial) == ("(partial, host has 4)", True)
