"""Facts of a host are read once each, and one read that hangs or fails costs its own answers only."""

import threading
from dataclasses import dataclass, field

import pytest

from gpucheck.host import source as module
from gpucheck.host.source import HostSource
from gpucheck.model import NotRecorded, PackageVersion
from gpucheck.processes.deadline import StuckError
from tests.fakes import FakeHost

END = threading.Event()


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Deadlines that a test can wait for; what hangs is released."""
    END.clear()
    monkeypatch.setattr(module, "READ_S", 0.3)
    monkeypatch.setattr(module, "AFTER_STUCK_S", 0.1)
    yield
    END.set()


@dataclass
class Counting(FakeHost):
    """Notes each question."""

    asked: list[str] = field(default_factory=list)

    def limits(self):
        self.asked.append("limits")
        return super().limits()

    def kernel_log(self):
        END.wait(60)
        return super().kernel_log()

    def dkms(self):
        raise OSError(5, "Input/output error", "/var/lib/dkms")

    def services(self, names):
        if "unknown" in names:
            raise NotRecorded("the recording does not contain service unknown")
        return super().services(names)


def test_each_need_is_read_once():
    host = Counting()
    source = HostSource(host)

    source.read("limits", "system")
    facts = source.read("limits", "text:/etc/nccl.conf")

    assert host.asked == ["limits"]
    assert facts.system.hostname == "node07"
    assert facts.texts == {"/etc/nccl.conf": None}
    assert facts.missing(["nvml"]) == ["nvml"]


def test_a_read_that_hangs_is_waited_for_once():
    source = HostSource(Counting())

    for _ in range(3):
        with pytest.raises(StuckError, match="no end within"):
            source.read("limits", "kernel_log")

    assert source.stuck == 1
    assert source.read("limits").limits.nofile == 1 << 20


def test_an_error_is_raised_again_and_costs_nothing_else():
    source = HostSource(Counting())

    with pytest.raises(OSError, match="dkms"):
        source.read("dkms", "environment")

    assert source.read("environment").environment == {}


def test_a_name_that_is_not_recorded_does_not_cost_the_others():
    source = HostSource(Counting(services_={"a": "active"}))

    with pytest.raises(NotRecorded):
        source.read("service:a", "service:unknown")

    assert source.read("service:a").services == {"a": "active"}


def test_names_of_several_needs_are_read_together():
    host = FakeHost(packages_=(PackageVersion(name="a", version="1"),))

    facts = HostSource(host).read("package:a", "package:b", "library:libcudart", "folder:{purelib}")

    assert facts.packages == {"a": PackageVersion(name="a", version="1"), "b": None}
    assert facts.libraries == ()
    assert facts.folders == {"{purelib}": None}
