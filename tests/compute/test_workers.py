"""Children that compute: one that hangs, dies or prints nonsense is the loss of its device alone."""

import signal
import sys
import textwrap

import pytest

from gpucheck.compute.running.child import answer, failure_of, opened
from gpucheck.compute.running.run import Workers
from gpucheck.compute.values import Answer, ComputeStep, Failure, Opened, Setup
from gpucheck.measure.engines.driver.calls import CudaError, MissingCall
from gpucheck.model.device import Device
from gpucheck.processes import worker
from gpucheck.processes.child import Child
from gpucheck.processes.group import end
from tests.compute.machines import run

DEVICES = (Device(index=0, name="CPU process"), Device(index=1, name="CPU process"))
STEP = ComputeStep(kind="memory", what="read", seconds=0.1)
# A child without torch: it opens, then does what the test wants if it is device 1.
CHILD = """
import json, os, sys, time, signal
fd = int(sys.argv[1])
setup = json.loads(sys.stdin.readline())
def say(value): os.write(fd, (json.dumps(value) + "\\n").encode())
say({"type": "opened", "types": []})
for line in sys.stdin:
    if setup["device"]["index"] == 1:
        ACT
    say({"type": "answer", "rates": [1e9] * 7, "seconds": 0.1})
"""


def bench(act):
    return Workers(DEVICES, command=(sys.executable, "-c", textwrap.dedent(CHILD).replace("ACT", act)))


@pytest.mark.parametrize(
    ("act", "kind", "detail"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "crashed", "SIGKILL"),
        ("say({'type': 'failure', 'kind': 'cuda-error', 'detail': 'Xid'})", "cuda-error", "Xid"),
    ],
)
def test_what_happens_to_one_device_leaves_the_other(act, kind, detail):
    """What else a child may do is tests/measure/running/test_supervisor.py: both are one Worker."""
    made = bench(act)
    try:
        assert all(isinstance(first, Opened) for first in made.open())
        answers = made.run(STEP, (0, 1))
        again = made.run(STEP, (0, 1))
    finally:
        made.close()

    assert isinstance(answers[0], Answer)
    failure = answers[1]
    assert isinstance(failure, Failure)
    assert (failure.kind, detail in failure.detail) == (kind, True), failure
    assert set(again) == {0}, "a device that failed is not used again"


@pytest.mark.parametrize(("hurry", "patience_s"), [(False, 3.0), (True, 0.0)])
def test_a_signal_does_not_wait_for_the_step_of_a_child(monkeypatch, hurry, patience_s):
    given = []
    monkeypatch.setattr(worker, "in_a_hurry", lambda: hurry)
    monkeypatch.setattr(Child, "end", lambda _, patience_s=0.0: given.append(patience_s))
    made = bench("pass")
    made.open()
    children = [one._child.group for one in made._workers.values()]
    made.close()
    monkeypatch.undo()
    end(children, ((signal.SIGKILL, 5.0),))

    assert given == pytest.approx([patience_s] * 2)


class Broken:
    """An engine that raises."""

    def __init__(self, error):
        self.error = error

    def open(self, _setup):
        raise self.error

    def run(self, _step):
        raise self.error


@pytest.mark.parametrize(
    ("error", "start", "step"),
    [
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "missing-package", "missing-package"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "no-memory", "no-memory"),
        (RuntimeError("CUDA error: an illegal memory access"), "not-started", "cuda-error"),
        (CudaError("cuStreamSynchronize", 700), "not-started", "cuda-error"),
        (CudaError("cuMemAlloc", 2), "no-memory", "no-memory"),
        (MissingCall("cuInit"), "not-started", "defect"),
        (LookupError("torch sees 0 GPUs"), "not-started", "defect"),
        (TypeError("a mistake"), "defect", "defect"),
    ],
)
def test_an_error_of_the_framework_has_a_kind(error, start, step):
    setup = Setup(device=DEVICES[0], parent_pid=1)

    assert opened(Broken(error), setup).kind == start
    assert answer(Broken(error), STEP).kind == step
    assert failure_of(error).detail


class Bench:
    """Two devices, of which the second never opens."""

    def __init__(self):
        self.steps = []

    def open(self):
        return [Opened(types=("fp32",)), Failure(kind="missing-package", detail="torch")]

    def run(self, step, places):
        self.steps.append((step.label, tuple(places)))
        return {
            place: Answer(rates=(1.0,) * 7, digests=("a",) * 7, values=10, seconds=step.seconds) for place in places
        }

    def close(self):
        pass


def test_a_device_that_did_not_open_is_asked_nothing():
    made = Bench()
    ran = run(made, DEVICES, small=True)

    assert {places for _, places in made.steps} == {(0,)}
    assert ran.devices[1].failed == "missing-package"
    assert ran.devices[0].repeats["matrix-fp32"].values == 140, "cold and hot repeats count"
