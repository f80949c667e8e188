"""Whatever a step or a read of the host does, the report comes, in time, with a finding that names the call."""

import errno
import signal
import threading
import time

import pytest

from gpucheck.host import live as of_host
from gpucheck.model import Check, Finding, Verdict
from gpucheck.run import verification as run
from gpucheck.run.step import Guard
from tests.fakes import facts, live
from tests.machines import p100, whole_host

PASSED = Finding(check="fine", verdict=Verdict.PASS, subject="host")
FINE = run._check_step(Check("fine", frozenset({"quick"}), lambda _: [PASSED]))
HOST = whole_host(p100(0), p100(1))


def step(call, seconds=5.0, name="odd"):
    return run.RunStep(name, frozenset({"measure"}), call, seconds, 0.001)


def raising(error):
    def call(_host):
        raise error

    return step(call)


def broken(_values):
    raise RuntimeError("no such key: fan")


@pytest.fixture
def release():
    """What a step waits for that hangs; set at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def test_a_check_that_breaks_costs_only_itself():
    """The report of all the others survives, and the broken one is a finding that says where."""
    check = Check("fan", frozenset({"quick"}), broken)
    report = run.verify(HOST, [run._check_step(check), FINE])

    assert [finding.verdict for finding in report.findings] == [Verdict.UNKNOWN, Verdict.PASS]
    assert "no such key: fan" in str(report.findings[0].seen)
    assert any("test_deadlines.py" in line for line in report.findings[0].evidence)


def test_a_read_that_hangs_is_a_finding_of_each_check_that_needs_it(monkeypatch, release):
    """It names the call, the thread that hangs is left behind, and it is waited for once."""

    def wait_for_the_kernel():
        release.wait(60)

    monkeypatch.setattr(of_host, "READ_S", 0.1)
    host = live(monkeypatch, HOST, kernel_log=wait_for_the_kernel)
    checks = [Check(f"log{n}", frozenset({"quick"}), lambda _: [PASSED], needs=("kernel_log",)) for n in range(3)]
    report = run.verify(host, [*map(run._check_step, checks), FINE])

    assert [f.verdict for f in report.findings] == [Verdict.UNKNOWN] * 3 + [Verdict.PASS]
    assert {f.code for f in report.findings[:3]} == {"run.call-stuck"}
    assert "no end within 0.1 s" in str(report.findings[0].seen)
    assert any("wait_for_the_kernel" in line for line in report.findings[0].evidence)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("CUDA error: unspecified launch failure"), "run.check-defect"),
        (OSError(errno.ENOSPC, "No space left on device", "/dev/shm/torch_1"), "run.file-call-rejected"),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), "run.call-rejected"),
        (SystemExit(3), "run.check-defect"),
        (MemoryError(), "run.call-rejected"),
    ],
)
def test_a_step_that_raises_costs_only_itself(error, code):
    report = run.verify(HOST, [raising(error), FINE])

    assert [(f.verdict, f.code) for f in report.findings] == [(Verdict.UNKNOWN, code), (Verdict.PASS, None)]


def test_a_step_that_is_given_up_ends_what_it_started():
    """Its thread is told to leave, so that no process of ours runs on beside the report."""
    ended = threading.Event()

    def copies_for_ever(_host):
        try:
            while True:
                time.sleep(0.01)
        except Exception:  # what a step catches must not swallow the order to leave
            ended.wait(60)
        finally:
            ended.set()

    report = run.verify(HOST, [step(copies_for_ever, 0.1), FINE])

    assert "copies_for_ever" in str(report.findings[0].seen)
    assert ended.wait(30)


@pytest.fixture
def interruptible():
    """As at a terminal: what a shell runs in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_what_the_step_started_first():
    """Ctrl-C while the run waits for the step."""
    ended = threading.Event()

    def trains(_host):
        try:
            time.sleep(0.2)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            while True:
                time.sleep(0.01)
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        run.verify(HOST, [step(trains, 60.0)])

    assert ended.is_set()


def test_a_host_that_hangs_when_the_report_is_written_still_gets_one(monkeypatch, release):
    """A kernel that never answers about the PCI bus: one finding, for all that the report needs of it."""

    def wait_for_the_bus():
        release.wait(60)

    monkeypatch.setattr(of_host, "READ_S", 0.1)
    report = run.verify(live(monkeypatch, HOST, pci=wait_for_the_bus), [FINE])

    (stuck,) = (f for f in report.findings if f.check == "report")
    assert report.host == facts().system.hostname
    assert report.topology is None
    assert stuck.verdict is Verdict.UNKNOWN
    assert any("in wait_for_the_bus" in line for line in stuck.evidence)
    assert (report.counts["unknown"], report.verdict) == (1, Verdict.UNKNOWN)


def test_what_the_host_cannot_say_of_itself_does_not_cost_the_findings(monkeypatch):
    """A host without a name, whose Python packages cannot be listed."""

    def no_release():
        raise RuntimeError("no os-release")

    def no_packages():
        raise ValueError("damaged metadata")

    report = run.verify(live(monkeypatch, facts(), system=no_release, python=no_packages), [FINE])

    assert report.system.os_id == "unknown"
    assert {str(f.seen) for f in report.findings[1:]} >= {"RuntimeError: no os-release", "ValueError: damaged metadata"}


def test_a_thread_that_cannot_start_is_not_waited_for(monkeypatch):
    """As under ulimit -v: each of 35 steps once waited ten seconds for a thread that never ran."""

    def refused(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    (found,) = Guard(HOST).run(step(lambda _: None)).findings

    assert found.verdict is Verdict.UNKNOWN
    assert found.code == "run.call-rejected"
