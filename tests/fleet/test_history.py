"""The history of nodes: what counts as bad, the interval, and who is worse than the fleet."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.fleet.history import history, interval
from gpucheck.fleet.row import lemons, read_labels
from gpucheck.model import Verdict
from tests.fleet import reports
from tests.fleet.reports import bad

# Of Slurm 22.05.8: sacctmgr -nP show event start=2026-01-01 format=NodeName,TimeStart,TimeEnd,State,Reason
EVENTS = Path(__file__).parents[1] / "data/slurm/events.txt"


def search(day: int, **verdicts: str) -> str:
    """A report of isolate."""
    nodes: list[dict[str, object]] = [
        {"name": name, "verdict": verdict, "cause": None, "measured": []} for name, verdict in verdicts.items()
    ]
    started = f"2026-11-{day:02}T10:00:00+00:00"
    return json.dumps(
        {
            "schema": "gpucheck.isolation/1", "host": "h", "simulated": False, "started": started,
            "seconds": 1.0, "nodes": nodes, "rounds": [], "tests": 0, "results": [], "verdict": "fail", "findings": [],
            "counts": {},
        }
    )  # fmt: skip


def report(day: int, verdict: Verdict, owner: str = "node", not_proven: tuple[str, ...] = ()) -> str:
    """A report of verify on host a."""
    findings = () if verdict is Verdict.PASS else (msgspec.structs.replace(bad(verdict=verdict), owner=owner),)
    started = f"2026-11-{day:02}T10:00:00+00:00"
    made = reports.report("a", started=started, findings=(reports.GOOD, *findings), not_proven=not_proven)
    return msgspec.json.encode(made).decode()


def of(folder: Path, *texts: str) -> dict[str, tuple[int, int]]:
    paths = []
    for number, text in enumerate(texts):
        name = json.loads(text)["host"] if "gpucheck.report" in text else "search"
        path = folder / str(number) / f"{name}.json"
        path.parent.mkdir()
        path.write_text(text)
        paths.append(path)
    return {one.node: (one.bad_days, one.days) for one in history(paths).nodes}


def test_days_count_and_not_reports(tmp_path):
    found = of(
        tmp_path, search(1, a="pass", b="fail"), search(1, a="pass", b="fail"), search(2, a="pass", b="pass"),
        search(3, a="unknown", b="warn"),
    )  # fmt: skip
    assert found == {"a": (0, 2), "b": (1, 2)}  # doubt is neither good nor bad


def test_reports_of_hosts_count(tmp_path):
    found = of(
        tmp_path,
        report(1, Verdict.FAIL),
        report(2, Verdict.PASS),
        report(3, Verdict.FAIL, "user"),
        report(4, Verdict.UNKNOWN),
        report(5, Verdict.WARN),
    )
    assert found == {"a": (1, 3)}


def test_a_few_checks_that_pass_are_no_good_day(tmp_path):
    few = ("everything except numa, excluded by --only",)

    assert of(tmp_path, report(1, Verdict.PASS, not_proven=few), report(2, Verdict.FAIL)) == {"a": (1, 1)}


def test_drains_of_slurms_accounting():
    by_node = {one.node: one for one in history([EVENTS]).nodes}
    n1, n2, n3 = (by_node[name] for name in ("n1", "n2", "n3"))
    assert (n1.drained, n1.drained_again, n1.bad_days) == (2, 1, 1)
    assert n1.reasons == ("gpucheck:nvlink-down g2 17/18 reset-gpu",)
    assert (n2.bad_days, n2.other_drains) == (0, 1)  # a person's drain accuses nobody
    assert (n3.drained, n3.bad_days) == (1, 1)
    assert set(by_node) == {"n1", "n2", "n3"}


def test_what_is_no_report_is_named(tmp_path):
    (tmp_path / "a.json").write_text("{")
    assert history([tmp_path / "a.json"]).unread == ("a.json",)


@given(st.integers(1, 500).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))))
def test_the_interval_holds_the_part_and_narrows(sample):
    bad, total = sample
    low, high = interval(bad, total)
    assert 0 <= low <= bad / total + 1e-9
    assert bad / total - 1e-9 <= high <= 1
    more = interval(4 * bad, 4 * total)
    assert more[1] - more[0] <= high - low


def test_known_intervals():
    """Newcombe 1998, table I: 81 of 263, and 15 of 148."""
    assert interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)


def test_a_lemon_needs_two_bad_days_and_is_worse_than_the_fleet(tmp_path):
    days = [search(day, **dict.fromkeys((f"n{at}" for at in range(20)), "pass"), once="pass") for day in range(1, 6)]
    bad = [search(day, lemon="fail", worse="fail") for day in range(1, 4)] + [search(9, worse="fail", once="fail")]
    for number, text in enumerate([*days, *bad]):
        (tmp_path / f"{number}.json").write_text(text)
    command = [sys.executable, "-m", "gpucheck", "fleet", "history", str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    first, *_, last = shown.splitlines()[1:]
    assert first.split() == ["worse", "4", "of", "4", "51", "to", "100", "%", "4", "0", "0", "2026-11-09"]
    assert last == "23 nodes, 2 worse than the fleet: worse, lemon"
    switches = tmp_path / "switches.csv"
    switches.write_text("host,switch\nn1,s1\nnew,s2\n")
    out = tmp_path / "nodes.csv"
    subprocess.run([*command, "--labels", str(switches), "--format", "csv", "-o", str(out)], check=True)
    labels = read_labels(out)
    assert lemons(labels) == ("worse", "lemon")
    assert (labels["n1"]["switch"], labels["new"]["switch"]) == ("s1", "s2")


def test_a_place_that_is_no_number_is_rejected():
    with pytest.raises(ValueError, match="expected a number"):
        lemons({"a": {"lemon": "x"}})
