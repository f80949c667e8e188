"""Faults switched while a program reads: file by file, only what differs, and back again to what it was."""

import os
import threading
from pathlib import Path

import pytest

from gpucheck import simulator
from gpucheck.simulator.live import STAND_INS


@pytest.fixture
def machine(tmp_path, monkeypatch, cache):
    """A private machine of two P100."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    simulator.make(simulator.load("p100-pcie-x2"), tmp_path / "machine", (), STAND_INS)
    return tmp_path / "machine"


def everything(folder):
    """Path -> (identity of the file, content or target)."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = (path.lstat().st_ino, str(path.readlink()))
        elif path.is_file():
            found[name] = (path.stat().st_ino, path.read_bytes())
    return found


def contents(folder):
    return {name: content for name, (_, content) in everything(folder).items()}


def test_switching_is_the_same_as_making_it_broken(machine, tmp_path):
    faults = ("nouveau", "xid:gpu=0,code=79", "shm-small")
    simulator.make(simulator.load("p100-pcie-x2"), tmp_path / "broken", faults, STAND_INS)
    simulator.switch(machine, faults)

    assert contents(machine) == contents(tmp_path / "broken")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_switching_back_leaves_nothing_behind(machine):
    before = contents(machine)
    simulator.switch(machine, ["driver-not-loaded", "iommu-translating"])
    assert contents(machine) != before
    simulator.switch(machine, [])

    assert contents(machine) == before
    assert not (machine / "root/sys/kernel/iommu_groups").exists()


def test_only_files_that_differ_are_replaced(machine):
    """Whoever holds a file open, or polls its modification time, sees no change where there is none."""
    before = everything(machine)
    simulator.switch(machine, ["xid:gpu=0,code=31"])
    after = everything(machine)

    assert {name for name in before if before[name] != after[name]} == {
        "recipe.json",
        "root/dev/kmsg",
        "simulation.json",
    }


def test_reader_never_sees_half_a_file(machine):
    """A file is always there and always one of the two states."""
    file, seen, stop = machine / "root/dev/kmsg", set(), threading.Event()

    def read():
        while not stop.is_set():
            seen.add(file.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(6):
        simulator.switch(machine, ["xid:gpu=0,code=31"] if number % 2 else [])
    stop.set()
    reader.join()

    assert 1 <= len(seen) <= 2


@pytest.mark.parametrize("faults", [["no-such"], ["gpu-lost:gpu=9"], ["gpu-lost"]])
def test_refused_fault_leaves_the_machine_as_it_was(machine, faults):
    before = everything(machine)
    with pytest.raises((LookupError, ValueError)):
        simulator.switch(machine, faults)

    assert everything(machine) == before


def test_shared_machine_of_the_cache_is_not_written_to(activate):
    directory = activate("p100-pcie-x2")
    before = everything(directory)
    with pytest.raises(ValueError, match="in the cache, where other runs use it"):
        simulator.switch(directory, ["shm-small"])

    assert everything(directory) == before


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"profile": 1}'])
def test_folder_without_a_machine_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "recipe.json").write_bytes(content)
    with pytest.raises(ValueError, match="not a simulated machine"):
        simulator.switch(tmp_path, [])

    assert os.listdir(tmp_path) == ([] if content is None else ["recipe.json"])  # noqa: PTH208


def test_profile_of_ones_own_is_switched_without_its_file(tmp_path, monkeypatch, cache):
    """The machine knows what it was made from."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    own = tmp_path / "own.yml"
    own.write_text((Path(simulator.__file__).parent / "profiles/rtx4090-x2.yml").read_text())
    simulator.make(simulator.load(str(own)), tmp_path / "machine", (), STAND_INS)
    own.unlink()
    simulator.switch(tmp_path / "machine", ["rebar-off"])

    assert '"own"' in (tmp_path / "machine/simulation.json").read_text()
