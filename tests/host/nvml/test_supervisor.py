"""A child that hangs, crashes or talks nonsense ends as a value that names the call, and in time."""

import subprocess
import sys
import time
from collections.abc import Callable

import pynvml
import pytest

from gpucheck.host import live_source
from gpucheck.host.nvml.calls import Calls
from gpucheck.host.nvml.reading import fabric
from gpucheck.host.nvml.supervisor import NvmlChild, _Transcript, query_child, query_twice
from gpucheck.model import (
    CRASHED,
    DEFECT,
    LATE,
    NOT_STARTED,
    NvmlFailure,
    NvmlReading,
)
from tests.shared import END_S

# A child that responds.
NOT_LOADED = """os.write(pipe, b'= {"type":"failure","call":"nvmlInit","code":9,"name":"DriverNotLoaded"}\\n')"""


def failure_of(answer: NvmlReading | NvmlFailure) -> NvmlFailure:
    assert isinstance(answer, NvmlFailure)
    return answer


def script(body):
    """A stub of the child: its first argument is the descriptor, as of the real one."""
    return (sys.executable, "-c", f"import os, sys, time\npipe = int(sys.argv[1])\n{body}")


def test_one_late_answer_proves_nothing():
    """As of a driver that initialises many GPUs for the first client and has them ready for the second."""
    first = NvmlChild(0.3, script("time.sleep(60)"))

    assert failure_of(query_twice(first, lambda: NvmlChild(10, script(NOT_LOADED)))).code == 9


@pytest.mark.parametrize(
    ("call", "gpus", "code"), [("nvmlInit", 8, 9), ("nvmlInit", 0, LATE), ("nvmlDeviceGetName", 8, LATE)]
)
def test_initialisation_gets_time_for_every_gpu_and_a_later_call_does_not(call, gpus, code):
    child = NvmlChild(0.8, script(f"os.write(pipe, b'> {call} host\\n'); time.sleep(3)\n{NOT_LOADED}"))
    child.more_time(gpus)

    assert failure_of(child.answer()).code == code


def test_library_that_cannot_be_loaded(activate, monkeypatch, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libnvidia-ml.so.1").write_text("no ELF")
    monkeypatch.setenv("GPUCHECK_SIMULATOR", str(tmp_path))
    for isolated in (True, False):
        failure = live_source(isolated=isolated, deadline_s=10).read("nvml").nvml
        assert isinstance(failure, NvmlFailure)
        assert failure.call == "dlopen"
        assert "invalid ELF header" in failure.detail or "file too short" in failure.detail


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("os.write(pipe, b'= {garbage')", "ChildFailed"),
        ("os.write(pipe, b'= {garbage\\n')", "ChildAnswerUnreadable"),
        ("os.write(pipe, b'= [1, 2]\\n')", "ChildAnswerUnreadable"),
        ("os.write(pipe, bytes(range(256)) * 300)", "ChildFailed"),
        ('os.write(pipe, b\'= {"type": "reading"}\\n\')', "ChildAnswerUnreadable"),
        ("print('noise', file=sys.stdout)", "ChildFailed"),
        ("", "ChildFailed"),
        ("raise AttributeError('module pynvml has no attribute x')", "ChildFailed"),
    ],
)
def test_garbage_is_a_failure_value(body, name):
    failure = failure_of(query_child(10, script("os.write(pipe, b'> nvmlInit host\\n')\n" + body)))

    assert (failure.name, failure.code) == (name, DEFECT)


@pytest.mark.parametrize(("signal", "code"), [("SIGKILL", NOT_STARTED), ("SIGTERM", NOT_STARTED), ("SIGSEGV", CRASHED)])
def test_a_child_that_is_killed_from_outside_says_nothing_of_the_driver(signal, code):
    """The out-of-memory killer and people use SIGKILL; a library that crashes raises others."""
    failure = failure_of(query_child(10, script(f"import signal; os.kill(os.getpid(), signal.{signal})")))

    assert (failure.code, f"killed by {signal}" in failure.detail) == (code, True)


def test_chatter_does_not_move_the_deadline(monkeypatch):
    """Calls keep coming faster than they are read, an answer does not."""
    take = _Transcript.take
    monkeypatch.setattr(_Transcript, "take", lambda self, line: (time.sleep(0.0002), take(self, line)))
    body = "while True: os.write(pipe, (b'> nvmlDeviceGetName ' + b'g' * 1000 + b'\\n') * 50)"
    failure = failure_of(query_child(1.0, script(body)))

    assert (failure.call, failure.code) == ("nvmlDeviceGetName", LATE)


def test_asking_begins_at_once_and_the_answer_is_there_when_it_is_wanted(activate):
    """A large machine has more to say than a pipe usually holds: the child must not wait for us to listen."""
    activate("hgx-h100-x8")
    host = live_source(isolated=True, deadline_s=20, begin=True)
    child = host.place.begun
    assert child is not None
    child.child.process.wait(END_S)

    assert child.child.process.returncode == 0
    assert isinstance(host.read("nvml").nvml, NvmlReading)


def test_who_comes_late_still_gets_the_answer():
    """The deadline is for the child; what it said in time counts, however long we were busy."""
    child = NvmlChild(0.01, script(NOT_LOADED))
    child.child.process.wait(END_S)

    assert failure_of(child.answer()).code == 9


def test_a_child_that_nobody_asks_leaves_no_zombie_behind(monkeypatch):
    registered: list[Callable[[], None]] = []
    monkeypatch.setattr("gpucheck.host.nvml.supervisor.atexit.register", registered.append)
    child = NvmlChild(5, script("time.sleep(60)"))
    (kill,) = registered
    kill()

    assert child.child.process.wait(END_S) == -9
    assert failure_of(child.answer()).code == NOT_STARTED


def test_the_child_imports_what_it_needs_and_no_more():
    """Its start is most of what `gpucheck topo` waits for."""
    code = "import sys, gpucheck.host.nvml.child, gpucheck.host.nvml.reading; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert "gpucheck.host.nvml.calls" in loaded
    assert {"gpucheck.host.live", "gpucheck.host.nvml.health", "importlib.metadata", "click"}.isdisjoint(loaded)


def test_a_child_without_memory_says_nothing_of_the_driver():
    failure = failure_of(query_child(10, script("raise MemoryError")))

    assert (failure.name, failure.code) == ("ChildOutOfMemory", NOT_STARTED)


@pytest.mark.parametrize(
    ("knows", "summary", "mask"), [("v3", "limited-capacity", 0x1AA), ("v2", None, 0x1AA), ("v1", None, None)]
)
def test_an_older_library_is_asked_for_an_older_structure(monkeypatch, knows, summary, mask):
    """Version 3 has the summary, 2 the mask; the first call has no version."""
    versions = {"v3": {pynvml.nvmlGpuFabricInfo_v3, pynvml.nvmlGpuFabricInfo_v2}, "v2": {pynvml.nvmlGpuFabricInfo_v2}}

    def versioned(_, reference):
        info = reference._obj
        if info.version not in versions.get(knows, ()):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        info.state, info.healthMask = 3, 0x1AA
        if info.version == pynvml.nvmlGpuFabricInfo_v3:
            info.healthSummary = 3

    def first(_, reference):
        reference._obj.state = 3

    monkeypatch.setattr(pynvml, "nvmlDeviceGetGpuFabricInfoV", versioned)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetGpuFabricInfo", first)
    calls = Calls(lambda call, subject: None)
    seen = fabric(calls, "gpu:0000:1b:00.0", object())

    assert seen is not None
    assert (seen.state, seen.health_summary, seen.health_mask) == ("completed", summary, mask)
    assert calls.gaps == []
