"""Facts of a host are read once each, and one read that hangs or fails costs its own answers only."""

import threading

import pytest

from gpucheck.host import LiveSource, Place
from gpucheck.host import live as module
from gpucheck.model import PackageVersion
from gpucheck.processes.deadline import StuckError
from tests.fakes import facts, live

END = threading.Event()


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Deadlines that a test can wait for; what hangs is released."""
    END.clear()
    monkeypatch.setattr(module, "READ_S", 0.3)
    monkeypatch.setattr(module, "AFTER_STUCK_S", 0.1)
    yield
    END.set()


def hangs():
    END.wait(60)


def test_each_need_is_read_once(monkeypatch):
    asked = []
    source = live(monkeypatch, facts(), limits=lambda: asked.append("limits"))

    source.read("limits", "system")
    found = source.read("limits", "text:/etc/nccl.conf")

    assert asked == ["limits"]
    assert found.system.hostname == "node07"
    assert found.texts == {"/etc/nccl.conf": None}
    assert found.missing(["nvml"]) == ["nvml"]
    assert source.read() is found


def test_a_read_that_hangs_is_waited_for_once(monkeypatch):
    source = live(monkeypatch, facts(), kernel_log=hangs)

    for _ in range(3):
        with pytest.raises(StuckError, match="no end within"):
            source.read("limits", "kernel_log")

    assert source.stuck == 1
    assert source.read("limits").limits.nofile == 1 << 20


def test_what_needs_a_part_that_hangs_ends_as_that_does(monkeypatch):
    """NVML is given time by the number of GPUs on the bus, and the device files are those that NVML does not list."""
    source = live(monkeypatch, facts(), pci=hangs)

    for need in ("device_files", "nvml", "pci"):
        with pytest.raises(StuckError, match="no end within"):
            source.read(need)

    assert source.stuck == 1


def test_an_error_is_raised_again_and_costs_nothing_else(monkeypatch):
    def damaged():
        raise OSError(5, "Input/output error", "/var/lib/dkms")

    source = live(monkeypatch, facts(), dkms=damaged)

    places = []
    for _ in range(2):
        with pytest.raises(OSError, match="dkms") as raised:
            source.read("dkms", "environment")
        places.append([entry.name for entry in raised.traceback])

    assert places[0][-1] == "damaged"
    assert places[0] == places[1]
    assert source.read("environment").environment == {}


def test_names_of_several_needs_are_read_together(monkeypatch):
    asked = []
    host = facts(packages=(PackageVersion(name="a", version="1"),))
    source = live(monkeypatch, host, package=lambda: asked.append(1) or host.packages)

    found = source.read("package:a", "package:b", "library:libcudart", "library:libnccl", "package:a")

    assert found.packages == {"a": PackageVersion(name="a", version="1"), "b": None}
    assert (found.library_names, found.libraries) == (("libcudart", "libnccl"), ())


def test_paths_that_lie_elsewhere_on_another_machine(tmp_path, monkeypatch):
    """The torch of a host is below its interpreter's packages, wherever a recording of it is evaluated."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".nccl.conf").write_text("NCCL_DEBUG=INFO\n")

    found = LiveSource(Place(isolated=False, deadline_s=1.0)).read("text:{home}/.nccl.conf", "folder:{purelib}")

    assert found.texts == {"{home}/.nccl.conf": "NCCL_DEBUG=INFO\n"}
    assert "pytest" in found.folders["{purelib}"]
