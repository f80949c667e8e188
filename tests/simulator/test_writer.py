"""The machine directory: sysfs that agrees with NVML, driver states, the cache, the compiler."""

import json
import os
import shutil
import threading
from pathlib import Path

import pytest

from gpucheck import simulator
from gpucheck.model import DriverState
from gpucheck.simulator import compiler
from gpucheck.simulator.activation import STAND_INS
from tests.simulator.helpers import python, write

CLOSED = DriverState(
    loaded_version="580.178.04", loaded_flavour="proprietary", installed_version="595.91.07", installed_flavour="open"
)


@pytest.fixture
def written(tmp_path):
    """Write a machine and return its root."""

    def written(name, **options):
        return write(tmp_path / "machine", name, **{"driver": None} | options) / "root"

    return written


def test_bare_machine_has_no_module_and_nothing_bound(written):
    """What a lab host is before it is provisioned: the GPUs are not registered, and without persistence mode."""
    root = written("hgx-h100-x8")
    table = (root.parent / "machine.txt").read_text()

    assert not (root / "sys/module/nvidia").exists()
    assert not (root / "proc/driver").exists()
    assert not list(root.glob("lib/modules/*/updates"))
    assert not (root / "sys/bus/pci/devices/0000:19:00.0/driver").exists()
    assert "gpu.7.fabric.state = in-progress\n" in table
    assert "gpu.7.persistence = 0\n" in table


def test_every_link_of_the_tree_is_relative_and_leads_somewhere(written, tmp_path):
    """The directory is copied into containers."""
    root = written("dgx1-v100", driver=CLOSED)
    moved = Path(shutil.move(root, tmp_path / "moved"))
    links = [path for path in moved.rglob("*") if path.is_symlink()]

    assert len(links) > 40
    assert all(not link.readlink().is_absolute() and link.exists() for link in links)


def test_simulation_json_says_what_is_not_real(written):
    root = written("p100-pcie-x2", faults=["gpu-missing:gpu=1"], stand_ins=["kernel"])

    assert json.loads((root.parent / "simulation.json").read_text()) == {
        "profile": "p100-pcie-x2",
        "faults": ["gpu-missing:gpu=1"],
        "stand_ins": ["kernel"],
    }


def test_second_write_leaves_nothing_of_the_first(written):
    written("hgx-h100-x8", driver=CLOSED)
    root = written("p100-pcie-x2")

    assert len(list((root / "sys/bus/pci/devices").iterdir())) == 6
    assert not (root / "sys/module/nvidia").exists()


def test_foreign_directory_is_not_overwritten(tmp_path):
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(FileExistsError, match="not empty, and not a simulated machine"):
        simulator.write_machine(simulator.Recipe(profile=simulator.load("no-gpu"), driver=None), tmp_path)


def test_cached_activation_imports_neither_yaml_nor_the_writer(activate, cache):
    """`gpucheck topo --simulate` has 0.35 s for everything."""
    activate("hgx-h100-x8")
    code = (
        "import sys; from gpucheck import simulator; simulator.activate('hgx-h100-x8');"
        "print([m for m in ('yaml', 'gpucheck.simulator.writer', 'subprocess') if m in sys.modules])"
    )

    assert python(code) == "[]"


def test_no_compiler_is_one_clear_message(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("GPUCHECK_SIMULATOR", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match=r"no `cc` on PATH\. Install one: apt install gcc libc6-dev") as caught:
        simulator.activate("p100-pcie-x2")

    assert isinstance(caught.value.args[0], str)
    assert os.environ["GPUCHECK_SIMULATOR"] == ""


@pytest.mark.parametrize(
    ("build", "what"), [(simulator.build_library, "NVML"), (simulator.build_cuda_library, "CUDA driver")]
)
def test_installation_that_contains_the_library_needs_no_compiler(
    monkeypatch, tmp_path, build, what, path_with_libraries
):
    """Platform wheels and container images do: what they contain is of exactly this source, or it is not used."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", path_with_libraries)
    first = build(tmp_path / "first", "580.178.04")
    (tmp_path / "cache/gpucheck/libraries").rename(tmp_path / "libraries")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match=rf"C compiler to build its {what} library.*apt install gcc"):
        build(tmp_path / "second", "580.178.04")
    monkeypatch.setattr(compiler, "SHIPPED", tmp_path / "libraries")
    assert build(tmp_path / "second", "580.178.04").read_bytes() == first.read_bytes()


def test_compiler_that_fails_is_quoted(monkeypatch, tmp_path):
    (tmp_path / "cc").write_text("#!/bin/sh\necho 'fatal error: stdio.h: No such file' >&2\nexit 1\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(OSError, match=r"stdio\.h: No such file\nInstall the C headers"):
        simulator.build_library(tmp_path / "lib", "580.178.04")


def test_cache_that_cannot_be_written_is_replaced_by_our_own_folder(monkeypatch, tmp_path):
    """A home that is a file, or read-only, as in many containers."""
    from gpucheck.simulator import cache
    from gpucheck.simulator.cache import cache_folder

    monkeypatch.setattr(cache, "SYSTEM_CACHE", tmp_path / "file")
    monkeypatch.setenv("HOME", "/")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cache_folder("machines") == tmp_path / f"gpucheck-{os.getuid()}/machines"

    (tmp_path / f"gpucheck-{os.getuid()}").chmod(0o777)
    with pytest.raises(OSError, match=r"can be written by other users.*, so nothing is loaded from it"):
        cache_folder("machines")


def test_library_of_a_version_has_the_soname_link(tmp_path, activate):
    made = simulator.build_library(tmp_path, "570.86.15")

    assert made.name == "libnvidia-ml.so.570.86.15"
    assert (tmp_path / "libnvidia-ml.so.1").resolve() == made
    for build in (simulator.build_library, simulator.build_cuda_library):
        with pytest.raises(ValueError, match="not a driver version"):
            build(tmp_path, "../escape")
    with pytest.raises(ValueError, match="NVML this old"):
        simulator.build_library(tmp_path, "1.0")


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
