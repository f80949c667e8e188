"""The cache of simulated machines: what it keeps, and what is never removed from it."""

import os
import time

import pytest

from gpucheck.simulator import cache
from gpucheck.simulator.cache import SMALL_BYTES, STAMP, cache_folder, evict, publish, use

A, B, C = ("a" * 24, "b" * 24, "c" * 24)
MIB = 1 << 20
DAY_S = 86400.0


@pytest.fixture
def machines(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_folder("machines")


def add(folder, name, *, idle_s=DAY_S, size=MIB):
    """An entry of about this size, last used so long ago."""
    publish(folder / name, lambda partial: (partial / "machine.txt").write_bytes(b"x" * size))
    then = time.time() - idle_s
    os.utime(folder / name / STAMP, (then, then))
    return folder / name


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_entries_used_longest_ago_are_removed_until_the_rest_fits(machines, monkeypatch):
    for name, idle_s in ((A, 2 * DAY_S), (B, 3 * DAY_S), (C, DAY_S)):
        add(machines, name, idle_s=idle_s)

    monkeypatch.setattr(cache, "LIMIT_BYTES", 2 * MIB + MIB // 2)
    evict()
    assert names(machines) == [A, C]
    evict()
    assert names(machines) == [A, C]


def test_an_entry_that_was_used_within_the_hour_stays(machines, monkeypatch):
    add(machines, A)
    add(machines, B)
    assert use(machines / A)

    monkeypatch.setattr(cache, "LIMIT_BYTES", 0)
    evict()
    assert names(machines) == [A]


def test_only_directories_named_as_entries_are_removed(machines, tmp_path, monkeypatch):
    """Names of another form, links and files are not touched, not even where they lead."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / STAMP).write_text("999999999\n")
    (machines / A).symlink_to(elsewhere)
    (machines / B).write_text("a file")
    for name in ("notes", "A" * 24, "a" * 23, "a" * 25, ".hidden"):
        (machines / name).mkdir()
        (machines / name / STAMP).write_text("999999999\n")
        os.utime(machines / name / STAMP, (0, 0))
        os.utime(machines / name, (0, 0))
    before = names(machines)

    monkeypatch.setattr(cache, "LIMIT_BYTES", 0)
    evict()
    assert names(machines) == before
    assert (elsewhere / STAMP).exists()


def test_old_leftovers_are_removed(machines):
    for name in (f".{A}.x1y2z3_4", B, f".{C}.abcdefgh"):
        (machines / name).mkdir()
    old = time.time() - DAY_S
    os.utime(machines / f".{A}.x1y2z3_4", (old, old))
    os.utime(machines / B, (old, old))

    evict()
    assert names(machines) == [f".{C}.abcdefgh"]


def test_an_entry_of_an_earlier_version_is_replaced(machines):
    (machines / A).mkdir()
    (machines / A / "machine.txt").write_text("old")

    assert not use(machines / A)
    publish(machines / A, lambda partial: (partial / "machine.txt").write_text("new"))
    assert use(machines / A)
    assert (names(machines), (machines / A / "machine.txt").read_text()) == ([A], "new")


def test_of_two_writers_one_wins(machines):
    """The second finds the first one's entry where it puts its own."""
    publish(machines / A, lambda partial: publish(machines / A, lambda other: (other / "machine.txt").write_text("1")))

    assert (names(machines), (machines / A / "machine.txt").read_text()) == ([A], "1")


def test_equal_small_files_are_one_file(machines):
    def make(partial):
        for number in range(100):
            (partial / f"cpu{number}").write_text("0-7\n")
        for number in range(2):
            (partial / f"library{number}").write_bytes(b"x" * (SMALL_BYTES + 1))
        (partial / "secret").write_text("0-7\n")
        (partial / "secret").chmod(0o600)
        (partial / "link").symlink_to("cpu0")

    publish(machines / A, make)

    entry = machines / A
    assert len({path.stat().st_ino for path in entry.glob("cpu*")}) == 1
    assert len({path.stat().st_ino for path in entry.glob("library*")}) == 2
    assert (entry / "secret").stat().st_ino != (entry / "cpu0").stat().st_ino
    assert {path.read_text() for path in entry.glob("cpu*")} == {"0-7\n"}
    assert (entry / "link").is_symlink()
    assert int((entry / STAMP).read_text()) < 100 * SMALL_BYTES
