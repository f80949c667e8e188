"""The cache of simulated machines: where it may be, what it keeps, and what is never removed from it."""

import fcntl
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpucheck import simulator
from gpucheck.simulator import cache as cache_module
from gpucheck.simulator.cache import LOCK, SMALL_BYTES, clear, evict, limit_bytes, publish, use
from gpucheck.simulator.cache_place import cache_folder
from tests.shared import sampled

A, B, C = ("a" * 24, "b" * 24, "c" * 24)
MIB = 1 << 20


@pytest.fixture
def machines(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_folder("machines")


def add(folder, name, *, idle_s=3600.0, size=MIB):
    """An entry of about this size, last used so long ago."""
    publish(folder / name, lambda partial: (partial / "machine.txt").write_bytes(b"x" * size))
    then = time.time() - idle_s
    os.utime(folder / name / LOCK, (then, then))
    return folder / name


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_entries_used_longest_ago_are_removed_until_the_rest_fits(machines):
    for name, idle_s in ((A, 7200.0), (B, 86400.0), (C, 3600.0)):
        add(machines, name, idle_s=idle_s)

    removed = evict(2 * MIB + MIB // 2, keep=machines)

    assert (names(machines), removed.entries, removed.in_use) == ([A, C], 1, 0)
    assert MIB <= removed.bytes < MIB + MIB // 4


def test_a_cache_within_its_limit_keeps_everything(machines):
    add(machines, A, idle_s=1e9)

    assert evict(2 * MIB, keep=machines) == (0, 0, 0)
    assert names(machines) == [A]


def test_a_use_makes_an_entry_the_last_to_be_removed(machines):
    add(machines, A, idle_s=7200.0)
    add(machines, B, idle_s=3600.0)
    os.close(use(machines / A))

    evict(MIB + MIB // 2, keep=machines)
    assert names(machines) == [A]


def test_an_entry_that_a_process_holds_stays(machines):
    held = use(add(machines, A))
    past = time.time() - 86400.0
    os.utime(machines / A / LOCK, (past, past))
    add(machines, B)

    assert evict(0, keep=machines) == (1, pytest.approx(MIB, rel=0.1), 1)
    assert clear().in_use == 1
    assert names(machines) == [A]
    os.close(held)
    assert clear().entries == 1
    assert names(machines) == []


def test_an_entry_used_within_a_minute_stays_and_clear_removes_it(machines):
    add(machines, A, idle_s=5.0)

    assert evict(0, keep=machines).in_use == 1
    assert clear().entries == 1


def test_the_entry_of_the_caller_stays(machines):
    add(machines, A)

    assert evict(0, keep=machines / A).entries == 0
    assert names(machines) == [A]


def test_only_directories_named_as_entries_are_removed(machines, tmp_path):
    """Names of another form, links and files are not touched, not even where they lead."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / LOCK).write_text("999999999\n")
    (machines / A).symlink_to(elsewhere)
    (machines / B).write_text("a file")
    for name in ("notes", "A" * 24, "a" * 23, "a" * 25, ".hidden"):
        (machines / name).mkdir()
        (machines / name / LOCK).write_text("999999999\n")
        os.utime(machines / name, (0, 0))
    before = names(machines)

    assert evict(0, keep=machines) == clear() == (0, 0, 0)
    assert names(machines) == before
    assert (elsewhere / LOCK).exists()


def test_leftovers_and_outdated_entries_are_removed_when_they_are_a_day_old(machines):
    for name in (f".{A}.x1y2z3_4", B, f".{C}.abcdefgh"):
        (machines / name).mkdir()
    old = time.time() - 2 * 86400.0
    os.utime(machines / f".{A}.x1y2z3_4", (old, old))
    os.utime(machines / B, (old, old))

    evict(MIB, keep=machines)
    assert names(machines) == [f".{C}.abcdefgh"]


def test_an_entry_of_an_earlier_version_is_replaced(machines):
    (machines / A).mkdir()
    (machines / A / "machine.txt").write_text("old")

    assert use(machines / A) is None
    publish(machines / A, lambda partial: (partial / "machine.txt").write_text("new"))
    os.close(use(machines / A))
    assert (names(machines), (machines / A / "machine.txt").read_text()) == ([A], "new")


def test_a_use_that_waits_for_a_removal_finds_no_entry(machines):
    """The one that removes holds the lock: the other must not take the directory that is on its way out."""
    entry = add(machines, A)
    with (entry / LOCK).open("r+") as lock, ThreadPoolExecutor(1) as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = pool.submit(use, entry)
        time.sleep(0.2)
        assert not waiting.done()
        entry.rename(machines / f".{A}.removed")
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert waiting.result(10) is None


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
    assert int((entry / LOCK).read_text()) < 100 * SMALL_BYTES


@pytest.mark.parametrize(("text", "expected"), [(None, 512 * MIB), ("", 512 * MIB), ("0", 0), ("2048", 2048 * MIB)])
def test_limit_of_the_cache(monkeypatch, text, expected):
    monkeypatch.delenv("GPUCHECK_CACHE_MIB", raising=False)
    if text is not None:
        monkeypatch.setenv("GPUCHECK_CACHE_MIB", text)
    assert limit_bytes() == expected


@pytest.mark.parametrize("text", ["1 GiB", "-1", "1.5", "²"])
def test_a_limit_that_is_not_a_number_is_an_error(monkeypatch, text):
    monkeypatch.setenv("GPUCHECK_CACHE_MIB", text)
    with pytest.raises(ValueError, match=r"GPUCHECK_CACHE_MIB=.*not a whole number of MiB"):
        simulator.activate("no-gpu")


COUNT = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount(), flush=True)"


@pytest.mark.more
@pytest.mark.slow
@pytest.mark.parametrize("count", sampled([2, 12], (0,)))
def test_two_processes_that_fill_a_full_cache_keep_their_machines(monkeypatch, tmp_path, count):
    """Each makes machine after machine with room for none, and reads its own: nothing disappears under either."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("GPUCHECK_CACHE_MIB", "0")
    monkeypatch.setattr(cache_module, "IN_USE_S", 0.0)
    code = (
        "import sys, pynvml; from pathlib import Path; from gpucheck import simulator\n"
        "from gpucheck.simulator import cache; cache.IN_USE_S = 0.0\n"
        f"for number in range({count}):\n"
        "    fault = [f'power-limit:gpu={number % 2},watts={150 + number // 2}']\n"
        "    made = simulator.activate('p100-pcie-x2', fault)\n"
        "    assert (made / 'machine.txt').read_text() and len(list((made / 'root').rglob('*'))) > 100\n"
        "print('whole')"
    )
    commands = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    for process in commands:
        assert process.communicate(timeout=400)[0] == "whole\n"
    left = names(tmp_path / "gpucheck/machines")
    assert 1 <= len(left) <= 3, "what the two used last"
    assert not any(name.startswith(".") for name in left)


@pytest.mark.slow
def test_a_command_on_a_simulated_machine_keeps_the_machine_until_it_ends(monkeypatch, tmp_path, path_with_libraries):
    """gpucheck became the command: the lock is the command's now."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", path_with_libraries)
    gpucheck = [sys.executable, "-m", "gpucheck", "simulate"]
    client = f"import sys; print('ready', flush=True); sys.stdin.readline(); {COUNT}"
    with subprocess.Popen(
        [*gpucheck, "p100-pcie-x2", "--", sys.executable, "-c", client],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout.readline() == "ready\n"
        cleared = subprocess.run([*gpucheck, "--clear-cache"], capture_output=True, text=True, check=True)
        assert cleared.stdout.startswith("2 entries removed, "), "the compiled libraries"
        assert cleared.stdout.endswith(", 1 in use remain\n")
        assert running.communicate("\n", timeout=60)[0] == "2\n"

    cleared = subprocess.run([*gpucheck, "--clear-cache"], capture_output=True, text=True, check=True)
    assert cleared.stdout.startswith("1 entry removed, ")
    assert names(tmp_path / "gpucheck/machines") == []


@pytest.mark.slow
def test_clear_cache_takes_nothing_else():
    command = [sys.executable, "-m", "gpucheck", "simulate", "--clear-cache", "p100-pcie-x2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (64, "Error: --clear-cache cannot be combined with other arguments.\n")
