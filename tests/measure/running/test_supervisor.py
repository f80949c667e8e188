"""Whatever the measuring child does, the answer is a value, in time, and no process is left behind."""

import os
import sys

import pytest
from msgspec.structs import replace

from gpucheck.measure.running import runner
from gpucheck.measure.running.runner import Supervised
from gpucheck.measure.values import Answer, CopyStep, Opened
from gpucheck.model.copies import Failure, Flow
from gpucheck.processes import worker
from tests.measure.benches import TWO_PCIE, Here, fault
from tests.processes.test_group import state

STEP = CopyStep(operation="bandwidth", purpose="one direction", flows=(Flow(src=0, dst=1),), size=1 << 20)
OPENED = '{"type":"opened","buffer_bytes":1,"methods":["ce-write"],"clock":"none"}'
HELLO = f"""
import os, sys, time
fd = int(sys.argv[1])
sys.stdin.readline()
os.write(fd, b'{OPENED}\\n')
sys.stdin.readline()
"""


def setup():
    return replace(TWO_PCIE.setup(), parent_pid=os.getpid())


def saying(code):
    return (sys.executable, "-c", HELLO + code)


def pid_of(child):
    return child.worker.pid


def alive(pid):
    return state(pid) not in ("Z", None)


def test_a_child_answers_step_after_step():
    with Supervised(setup(), 10.0, TWO_PCIE.child()) as child:
        opened = child.open()
        answers = [child.run_step(STEP) for _ in range(3)]

    assert isinstance(opened, Opened)
    assert all(isinstance(answer, Answer) for answer in answers)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("time.sleep(60)", "stuck", "no progress for 0.5 s"),
        ("os.kill(os.getpid(), 11)", "crashed", "ended by SIGSEGV"),
        ("os.kill(os.getpid(), 9)", "killed", "ended by SIGKILL"),
        ("sys.exit('device lost')", "defect", "ended with exit status 1; its last line: device lost"),
        ("raise AttributeError('x')", "defect", "its last line: AttributeError: x"),
        ("os.write(fd, b'\\x00\\xff garbage\\n')", "defect", "output is invalid"),
        ('os.write(fd, b\'{"type":"opened"}\\n\')', "defect", "output is invalid"),
        ("os.write(fd, b'x' * 8000000)", "defect", "output is invalid"),
        ("sys.stderr.write('z' * 5000000); os.close(fd); time.sleep(60)", "defect", "closed its output"),
    ],
)
def test_a_broken_child_is_a_failure_that_names_the_step(code, kind, words):
    with Supervised(setup(), 0.5, saying(code)) as child:
        assert isinstance(child.open(), Opened)
        pid = pid_of(child)
        answer = child.run_step(STEP)

    assert isinstance(answer, Failure)
    assert (answer.kind, answer.purpose, answer.flows) == (kind, "one direction", STEP.flows)
    assert words in answer.detail
    assert not alive(pid)


@pytest.mark.parametrize(("waited", "kind"), [(0.0, "stuck"), (1e6, None), (0.02, "stuck")])
def test_time_without_a_processor_does_not_count(monkeypatch, waited, kind):
    """The child answers after twice its limit. On an overloaded host that is no hung copy."""
    late = 'time.sleep(1.0); os.write(fd, b\'{"type":"answer"}\\n\')'
    with Supervised(setup(), 0.5, saying(late)) as child:
        child.open()
        seen = iter([0.0] + [waited] * 99)
        monkeypatch.setattr(worker, "waited_s", lambda pid: next(seen))
        answer = child.run_step(STEP)

    assert (answer.kind if isinstance(answer, Failure) else None) == kind


@pytest.mark.parametrize(("simulated", "kind"), [(True, None), (False, "stuck")])
def test_time_in_which_a_simulated_gpu_computes_does_not_count(monkeypatch, simulated, kind):
    """A processor moves its bytes: on a slow machine a copy of a healthy simulated host was called hung."""
    monkeypatch.setattr(runner, "machine_directory", lambda: "/machine" if simulated else None)
    busy = 'while time.process_time() < 3: pass\nos.write(fd, b\'{"type":"answer"}\\n\')'
    with Supervised(setup(), 0.5, saying(busy)) as child:
        child.open()
        answer = child.run_step(STEP)

    assert (answer.kind if isinstance(answer, Failure) else None) == kind


def test_a_program_that_does_not_exist_is_a_failure():
    with Supervised(setup(), 1.0, ("/nonexistent/python",)) as child:
        answer = child.open()

    assert isinstance(answer, Failure)
    assert answer.kind == "no-process"


def test_a_stuck_copy_is_given_up_named_and_never_asked_for_again():
    """The first copy of the pair costs its deadline, all its later ones cost nothing."""
    with Supervised(setup(), 0.6, TWO_PCIE.child(fault("p2p-stuck"))) as child:
        assert isinstance(child.open(), Opened)
        results = TWO_PCIE.run(child.run_step, "quick", opened=child.opened)

    (failure,) = results.failures
    assert (failure.kind, failure.purpose, failure.flows) == ("stuck", "integrity", (Flow(src=0, dst=1),))
    assert results.broken == {frozenset((0, 1))}


def test_an_error_leaves_no_child_for_the_next_step():
    """A CUDA context may be spoilt by an error: every later copy would fail for the first one's reason."""
    with Supervised(setup(), 10.0, TWO_PCIE.child(fault("p2p-error"))) as child:
        child.open()
        first = pid_of(child)
        refused = child.run_step(STEP)
        staged = child.run_step(replace(STEP, flows=(Flow(src=0, dst=1, method="staged"),)))

        assert isinstance(refused, Failure)
        assert refused.kind == "refused"
        assert isinstance(staged, Answer)
        assert pid_of(child) != first


def test_leaving_ends_the_child():
    with Supervised(setup(), 10.0, TWO_PCIE.child()) as child:
        child.open()
        pid = pid_of(child)

    assert not alive(pid)


def test_a_ninth_peer_is_asked_for_again_in_a_child_that_has_mapped_none():
    """cudaErrorTooManyPeers says how many pairs came before, and nothing about this one."""

    class Eight:
        """Refuses what is asked while it is worn; the supervisor then starts a new child."""

        worn = True

        def run_step(self, step):
            if self.worn:
                self.worn = False
                return Failure(kind="no-peers-left", purpose=step.purpose, code=711)
            return two.run_step(step)

    two = Here(TWO_PCIE.engine(), TWO_PCIE.setup())
    results = TWO_PCIE.run(Eight().run_step)

    assert (results.failures, results.broken) == ([], set())
    assert len(dict(results.measured())) == 2
