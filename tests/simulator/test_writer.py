"""The machine directory: sysfs that agrees with NVML, driver states, the cache, the compiler."""

import json
import os
import shutil
from pathlib import Path

import pytest

from gpucheck import simulator
from gpucheck.model import DriverState
from gpucheck.simulator import compiler
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
