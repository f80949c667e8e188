"""Problems of a fleet: by cause on top, each problem once with its hosts and GPUs, what follows in one line."""

import json

import click
import msgspec
import pytest

from gpucheck.fleet.compare import changes
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Verdict
from gpucheck.model.fleet import Outlier
from gpucheck.render.fleet import render
from gpucheck.render.subjects.fleet import by_cause
from gpucheck.render.write.fleet_page import to_html
from tests.fleet.reports import bad, merged, report, steady

BUS = [f"0000:{n:02x}:00.0" for n in range(4)]
FOLLOWS = tuple(
    Finding(check=name, verdict=Verdict.UNKNOWN, subject="host", because_of="driver", why="no NVML", fix="f")
    for name in ("bar1", "throttle")
)


def limited(*gpus):
    return tuple(
        Subject(check="power-limit", name=f"gpu:{BUS[n]}").warns(
            "gpu.power-limit-lowered", "300 W", percent=43, default_w=700.0
        )
        for n in gpus
    )


@pytest.fixture(scope="module")
def fleet():
    """Two hosts without a driver, two with NVLinks down at different GPUs, two with power limits, one slow, others."""
    mismatch = bad("driver", "driver-mismatch", seen="580 and 570")
    hosts = [report(f"m{i}", verdict=Verdict.FAIL, findings=(*FOLLOWS, mismatch), topology=None) for i in (1, 2)]
    hosts += [report("link1", verdict=Verdict.FAIL, findings=(bad(subject=f"gpu:{BUS[2]}"),))]
    hosts += [report("link2", verdict=Verdict.FAIL, findings=(bad(subject=f"gpu:{BUS[1]}"), *limited(3)))]
    hosts += [report("low", verdict=Verdict.WARN, findings=limited(0, 1, 2, 3))]
    return merged(*steady(40), report("slow", 340.0), *hosts)


@pytest.fixture(scope="module")
def lines(fleet):
    return click.unstyle(render(fleet, "text")).splitlines()


def starting(lines, start):
    (found,) = [line for line in lines if line.startswith(start)]
    return found


def test_the_causes_come_first_the_worst_before_the_frequent(lines):
    assert lines[:2] == [
        "Problems by cause:",
        "  driver-mismatch: 2 hosts, nvlink-down: 2 hosts, power-limit-lowered: 2 hosts, unlike equal hosts: 1 host",
    ]


def test_consequences_are_one_line_below_their_root_cause(lines):
    """They were a block of three lines each."""
    at = lines.index(starting(lines, "FAIL    driver  m1, m2 (SIMULATED): 580 and 570"))

    assert (
        next(line for line in lines[at + 1 :] if line[0] != " ")
        == "UNKNOWN 2 checks not run because of this: bar1, throttle"
    )
    assert not [line for line in lines if line.startswith("UNKNOWN bar1")]


def test_a_remedy_for_several_hosts_names_no_bus_id_of_one_of_them(lines):
    at = lines.index(starting(lines, "WARN    power-limit  "))

    assert "  link2 GPU 3, low (all 4 GPUs)" in lines[at]
    assert starting(lines, "FAIL    nvlink ").startswith("FAIL    nvlink  link1 GPU 2, link2 GPU 1")
    assert any(line.endswith("sudo nvidia-smi -i BUS_ID -pl 700") for line in lines[at : at + 5])


def test_what_all_gpus_of_all_its_hosts_have_needs_no_gpu():
    text = click.unstyle(render(merged(*(report(n, findings=limited(0, 1, 2, 3)) for n in ("a", "b"))), "text"))

    assert "  a (all 4 GPUs), b (all 4 GPUs)" in text
    assert "sudo nvidia-smi -pl 700" in text


def test_what_unhealthy_hosts_share_stands_before_the_lists():
    unhealthy = [report(f"n{i:02d}", 330.0, attributes={"rack": ("r1",)}) for i in range(6)]
    healthy = [report(f"n{i:02d}", 380.0 + (i % 5 - 2) * 0.8, attributes={"rack": ("r2",)}) for i in range(6, 60)]
    text = render(merged(*unhealthy, *healthy), "text")

    assert text.index("What unhealthy hosts share") < text.index("hardware") < text.index("Outliers")


def test_a_cause_counts_hosts_not_findings(fleet):
    assert {name: count for name, _, count in by_cause(fleet.hosts)}["power-limit-lowered"] == 2


def test_the_page_has_the_causes_and_no_consequence_among_the_findings(fleet):
    """A search for throttle must not show hosts whose throttle check only could not run."""
    data = json.loads(to_html(fleet).partition('id="data">')[2].partition("</script>")[0])
    checks = {entry[0]: entry for entry in data["findings"]}

    assert data["by_cause"][0] == ["driver-mismatch", "fail", 2]
    assert "throttle" not in checks
    assert checks["driver"][6] == "2 checks not run because of this: bar1, throttle"
    assert data["titles"]["p2p.matrices.p2p_uni_gb_s[NV18]"] == "p2p matrices p2p uni [NV18] (GB/s)"
    assert f"GPU 2 ({BUS[2]})" in json.dumps(data["hosts"])


def test_an_outlier_knows_its_gpu():
    slow = report("slow", pairs={f"{min(2, n)}-{max(2, n)}": 300.0 for n in (0, 1, 3)})
    (row,) = [row for row in merged(*steady(), slow).hosts if row.host == "slow"]

    assert (row.problems[0].subject, row.problems[0].gpu_index) == (f"gpu:{BUS[2]}", 2)


def test_an_index_that_changed_with_a_reboot_is_no_change():
    before = merged(report("a", verdict=Verdict.FAIL, findings=(bad(subject=f"gpu:{BUS[2]}"),)))
    after = msgspec.structs.replace(before.hosts[0].problems[0], gpu_index=1)

    assert changes(before, [msgspec.structs.replace(before.hosts[0], problems=(after,))]) == ()


def test_what_only_follows_is_no_change():
    before = merged(report("a", verdict=Verdict.FAIL, findings=(bad("driver"),)))
    after = merged(report("a", verdict=Verdict.FAIL, findings=(bad("driver"), *FOLLOWS)))

    assert changes(before, after.hosts) == ()


def test_one_fault_of_a_host_is_one_problem():
    """The second check is named, and its fix is not printed as another problem."""
    also = Finding(
        check="throttle",
        verdict=Verdict.WARN,
        subject=f"gpu:{BUS[0]}",
        because_of=limited(0)[0].check,
        because_of_subject=f"gpu:{BUS[0]}",
        cause="power-limit-lowered",
        why="the limit holds the clocks",
        fix="another fix",
    )
    text = click.unstyle(render(merged(report("a", verdict=Verdict.WARN, findings=(*limited(0), also))), "text"))

    assert text.count("power-limit  a ") == 1
    assert "        also      throttle: the limit holds the clocks\n" in text
    assert "another fix" not in text


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_hosts_fit_the_terminal_and_simulated_ones_stay_marked(width):
    rows = [
        msgspec.structs.replace(row, system=f"Debian GNU/Linux {n} (bookworm)", gpus=f"{n} x NVIDIA H100 80GB HBM3",
                                simulated=True, simulation="hgx-h100-x8", driver=f"580.178.0{n}")
        for n, row in enumerate(merged(*[report(f"n{n}", 380.0) for n in range(4)]).hosts)
    ]  # fmt: skip
    fleet = msgspec.structs.replace(merged(report("n0", 380.0)), hosts=tuple(rows), outliers=())
    shown = click.unstyle(render(fleet, "text", width=width)).splitlines()
    found = [line for line in shown if line.startswith("PASS     ")]

    assert len(found) == 4
    assert all("SIMULATED" in line and len(line) <= width for line in found)
    assert any(line.startswith(f"Not shown in {width} columns: ") for line in shown) == (width < 110)


def test_what_all_hosts_have_in_common_and_what_changed_for_several_is_said_once():
    before = merged(*[report(f"n{n}", 380.0) for n in range(4)])
    after = merged(*[report(f"n{n}", 380.0, verdict=Verdict.FAIL, findings=(bad(),)) for n in range(4)])
    found = changes(before, after.hosts)
    reworded = tuple(msgspec.structs.replace(one, text=f"anything about {one.host}") for one in found)
    fleet = msgspec.structs.replace(after, changes=reworded)
    shown = click.unstyle(render(fleet, "text")).splitlines()

    assert next(line for line in shown if line.startswith("verdict")).split() == [
        "verdict",
        "host",
        "findings",
        "hardware",
    ]
    assert f"all 4: system {after.hosts[0].system or '-'}, GPUs " in "\n".join(shown)
    assert [line for line in shown if " was PASS, is FAIL." in line] == [
        "  broken  n0, n1, n2, n3: was PASS, is FAIL. New: nvlink."
    ]
    assert found[0].text == "n0 was PASS, is FAIL. New: nvlink."


def test_an_outlier_that_names_a_gpu_comes_before_those_of_its_entire_host():
    whole = Outlier(
        host="n0",
        group="g",
        metric="busbw_gb_s[all_reduce]",
        level="host",
        at=None,
        value=1,
        normal=2,
        percent=-50,
        z=9,
    )
    of_gpu = msgspec.structs.replace(whole, metric="p2p_uni_gb_s[NV18]", level="gpu", at="0000:4c:00.0", percent=-20.0)
    fleet = msgspec.structs.replace(merged(report("n0", 380.0)), outliers=(whole, of_gpu))
    shown = [line for line in click.unstyle(render(fleet, "text")).splitlines() if line.startswith("n0  ")]

    assert ["0000:4c:00.0" in line for line in shown[-2:]] == [True, False]
