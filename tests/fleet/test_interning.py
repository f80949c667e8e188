"""Rows that share equal values are the rows that they were, and take less room."""

import gc
import tracemalloc
from importlib import import_module

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.fleet.merge import Interner
from gpucheck.model import Finding, Verdict
from gpucheck.model.fleet import FleetRow, HostMetric

WORDS = st.sampled_from(["a", "b", "0-1", "nvlink"])
NUMBERS = st.sampled_from([0.0, 1.0, 8.0, 380.25])
FINDINGS = st.builds(
    Finding,
    check=WORDS,
    verdict=st.just(Verdict.FAIL),
    subject=WORDS,
    seen=st.sampled_from([1, 1.0, True, 8, 8.0, "8", None]),
    cause=st.none() | WORDS,
    why=WORDS,
    fix=WORDS,
    evidence=st.lists(WORDS, max_size=2).map(tuple),
)
METRICS = st.builds(
    HostMetric, n=st.integers(1, 3), host=NUMBERS, gpu=st.none() | NUMBERS, gpu_at=st.none() | WORDS, low=NUMBERS
)
ROWS = st.builds(
    FleetRow,
    host=WORDS,
    verdict=st.just(Verdict.FAIL),
    driver=st.none() | WORDS,
    counts=st.dictionaries(WORDS, st.integers(0, 2)),
    problems=st.lists(FINDINGS, max_size=3).map(tuple),
    gpu_uuids=st.lists(WORDS, max_size=2).map(tuple),
    attributes=st.dictionaries(WORDS, st.lists(WORDS, max_size=3).map(tuple)),
    metrics=st.dictionaries(WORDS, METRICS),
)


def read(row: FleetRow) -> FleetRow:
    """The row as it comes from a file, with objects of its own."""
    return msgspec.json.decode(msgspec.json.encode(row), type=FleetRow)


def host(name: str) -> FleetRow:
    """As a report of eight GPUs leaves it: only the name and one number are its own."""
    ports = tuple(f"0000:{n:02x}:00.0 gen 5 x16" for n in range(24))
    metrics = {f"finding.check-{n}.links": HostMetric(n=8, host=18.0) for n in range(8)}
    metrics["p2p.matrices.p2p_uni_gb_s[NV18]"] = HostMetric(n=56, host=float(len(name)), pair=1.5, pair_at="0-1")
    facts = {f"fact-{n}": (f"a version of {n}",) for n in range(10)}
    return read(FleetRow(host=name, verdict=Verdict.PASS, attributes={"uplink": ports, **facts}, metrics=metrics))


@given(st.lists(ROWS, max_size=5))
def test_a_row_says_what_it_said(rows):
    """To the letter: 8 stays 8 where another row says 8.0 or true."""
    shared = Interner()

    assert [msgspec.json.encode(shared.row(row)) for row in rows] == [msgspec.json.encode(row) for row in rows]


def test_a_large_fleet_takes_a_quarter_of_the_room():
    shared = Interner()

    def room(make) -> int:
        gc.collect()
        tracemalloc.start()
        rows = [make(f"n{n:04d}") for n in range(500)]
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return taken // len(rows)

    assert room(lambda name: shared.row(host(name))) < room(host) / 4


def test_what_is_each_hosts_own_is_not_remembered_for_ever(monkeypatch):
    monkeypatch.setattr(import_module("gpucheck.fleet.merge"), "MAX_KNOWN", 10)  # the package exports the function
    shared = Interner()
    rows = [FleetRow(host="n", verdict=Verdict.PASS, attributes={f"serial {n}": (str(n),)}) for n in range(50)]

    assert [shared.row(row) for row in rows] == rows
    assert len(shared._known) == 10
