"""Every way in which a rank can fail ends in time, names rank, device, step and phase, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from pathlib import Path

import pytest

from gpucheck.model.smoke import SmokeFailure, SmokeResult
from gpucheck.processes import temporary
from gpucheck.train import evaluate, run_smoke, smoke
from gpucheck.train.spec import Fault, SmokeOptions
from gpucheck.train.strategies import all_strategies
from tests.train.conftest import ROOT, STALL_S, Run, end_processes_with, heed_interrupts, processes_with, wait_until


def where(outcome: SmokeFailure | SmokeResult) -> tuple[object, ...]:
    assert isinstance(outcome, SmokeFailure)
    return outcome.kind, outcome.rank, outcome.device, outcome.step, outcome.phase


def test_ranks_that_finish_give_a_result(run: Run):
    outcome = run()

    assert isinstance(outcome, SmokeResult)
    assert (outcome.devices, outcome.loss_last) == (("toy:0", "toy:1"), 0.1)


def test_a_rank_that_never_enters_the_collective_is_told_from_the_one_that_waits_for_it(run: Run):
    outcome = run(Fault(kind="hang", phase="backward", step=3), stall_s=STALL_S)

    assert where(outcome) == ("hang", 1, "toy:1", 3, "backward")
    assert isinstance(outcome, SmokeFailure)
    assert outcome.seconds < 15, "long before the deadline of the whole run"
    assert "in _act" in outcome.stack[0], "the stack shows the very call it hangs in"
    assert "train/rank.py" in outcome.stack[0]
    assert "/smoke-" not in outcome.stack[0], "the run's folder is gone: its path would lead nowhere"
    assert any(line.startswith("rank 0 (toy:0): step 3 of 10, allreduce for") for line in outcome.evidence)


def test_when_all_ranks_wait_in_one_collective_no_rank_is_accused(run: Run):
    outcome = run(Fault(kind="hang", rank=None, phase="allreduce", step=3), stall_s=STALL_S)

    assert where(outcome) == ("hang", None, None, 3, "allreduce")


def test_a_stopped_process_is_seen_as_stopped_and_ended(run: Run):
    """SIGTERM does not reach a stopped process; only SIGKILL ends it."""
    outcome = run(Fault(kind="stop", phase="allreduce", step=3), stall_s=STALL_S)

    assert where(outcome) == ("hang", 1, "toy:1", 3, "allreduce")
    assert isinstance(outcome, SmokeFailure)
    assert outcome.process_state == "T"


def test_a_killed_rank_is_named_and_not_the_one_that_lost_its_peer(run: Run):
    outcome = run(Fault(kind="die", phase="backward", step=3))

    assert where(outcome) == ("died", 1, "toy:1", 3, "backward")
    assert isinstance(outcome, SmokeFailure)
    assert outcome.signal == "SIGKILL"
    assert any("ConnectionError: Connection closed by peer 1" in line for line in outcome.evidence)


def test_a_rank_that_runs_out_of_memory_is_named_with_the_cause(run: Run):
    """A limit of the process or its cgroup refuses memory; the kernel's OOM killer is the SIGKILL above."""
    outcome = run(Fault(kind="out-of-memory", phase="backward", step=3))

    assert where(outcome) == ("raised", 1, "toy:1", 3, "backward")
    assert isinstance(outcome, SmokeFailure)
    assert outcome.error_type == "MemoryError"
    assert evaluate(outcome)[0].cause == "rank-killed"


def test_a_crash_leaves_its_stack(run: Run):
    outcome = run(toy="crash")

    assert where(outcome) == ("died", 1, "toy:1", 3, "forward")
    assert isinstance(outcome, SmokeFailure)
    assert (outcome.signal, "in misbehave" in outcome.stack[0]) == ("SIGSEGV", True)


def test_a_rank_that_is_slow_to_die_is_still_the_cause(run: Run):
    """Its connections close first and its core is written after: the peer's exception is seen before the crash."""
    outcome = run(toy="slow-crash")

    assert where(outcome) == ("died", 1, "toy:1", 3, "forward")


def test_the_first_exception_counts_not_those_it_led_to(run: Run):
    outcome = run(Fault(kind="raise", phase="optimizer", step=3))

    assert where(outcome) == ("raised", 1, "toy:1", 3, "optimizer")
    assert isinstance(outcome, SmokeFailure)
    assert (outcome.error_type, outcome.detail) == ("ArithmeticError", "ArithmeticError: injected failure")
    assert "in _act" in outcome.stack[0]


def test_a_long_message_is_one_line_and_a_little_evidence(run: Run):
    outcome = run(toy="long-message")

    assert isinstance(outcome, SmokeFailure)
    assert outcome.detail == "RuntimeError: first line"
    assert sum("native frame" in line for line in outcome.evidence) == 7


def test_a_report_of_garbage_is_no_result(run: Run):
    outcome = run(Fault(kind="garbage", phase="backward", step=3))

    assert where(outcome) == ("garbage", 1, "toy:1", 3, "backward")


@pytest.mark.parametrize(
    ("how", "kind", "detail"),
    [
        ("leave", "garbage", "it ended with exit status 0 and left no report"),
        ("leave-badly", "died", "ended with exit status 7 and no word"),
    ],
)
def test_a_rank_that_leaves_early_is_no_success(run: Run, how, kind, detail):
    outcome = run(toy=how)

    assert where(outcome) == (kind, 1, "toy:1", 3, "forward")
    assert isinstance(outcome, SmokeFailure)
    assert outcome.detail == detail


def test_the_callers_folder_is_not_where_ranks_import_from(run: Run, tmp_path_factory, monkeypatch):
    """A training folder with a random.py or data.py of its own is the rule, not the exception."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "random.py").write_text("raise SystemExit('the wrong random')")
    (folder / "tempfile.py").write_text("raise SystemExit('the wrong tempfile')")
    monkeypatch.chdir(folder)

    assert isinstance(run(toy="imports"), SmokeResult)


def test_four_megabytes_of_noise_on_stdout_harm_nothing(run: Run):
    """Libraries print. A full pipe would block the rank, and what is printed is never taken for the answer."""
    assert isinstance(run(Fault(kind="noise", step=3)), SmokeResult)


def test_what_a_failed_rank_printed_is_evidence_without_control_characters(run: Run):
    outcome = run(Fault(kind="noise", phase="forward", step=2), toy="leave")

    assert isinstance(outcome, SmokeFailure)
    printed = [line for line in outcome.evidence if line.startswith("rank 1 printed: ")]
    assert printed[-1] == "rank 1 printed: \N{REPLACEMENT CHARACTER}noise"


def test_a_rank_that_hangs_while_it_starts_is_not_called_a_hang_of_training(run: Run):
    outcome = run(Fault(kind="hang", phase="import"), timeout_s=1.5)

    assert where(outcome) == ("timeout-start", 1, None, None, "import")


def test_ranks_that_still_make_steps_at_the_deadline_do_not_hang(run: Run):
    outcome = run(steps=100_000, timeout_s=1.5)

    assert isinstance(outcome, SmokeFailure)
    assert (outcome.kind, outcome.rank) == ("timeout", None)


def test_a_package_that_only_the_rank_misses_is_named(run: Run):
    outcome = run(toy="missing")

    assert isinstance(outcome, SmokeFailure)
    assert (outcome.kind, outcome.missing) == ("missing-package", "gpucheck_no_such_package")


def test_a_rank_that_ignores_sigterm_is_killed_and_the_deadline_holds(run: Run):
    started = time.monotonic()
    outcome = run(toy="stubborn", stall_s=STALL_S)

    assert where(outcome) == ("hang", 1, "toy:1", 3, "forward")
    assert time.monotonic() - started < 15


def test_what_a_rank_started_goes_with_it(run: Run):
    """The run fixture looks for the grandchild afterwards."""
    assert where(run(toy="family"))[0] == "died"


def _needs(monkeypatch, packages):
    known = {key: strategy._replace(packages=packages) for key, strategy in all_strategies().items()}
    monkeypatch.setattr(smoke, "all_strategies", lambda: known)


def test_a_missing_framework_is_found_before_any_process_is_started(monkeypatch):
    _needs(monkeypatch, ("gpucheck_no_such_package",))
    outcome = run_smoke(SmokeOptions())

    assert isinstance(outcome, SmokeFailure)
    assert (outcome.kind, outcome.missing) == ("missing-package", "gpucheck_no_such_package")


def test_no_room_for_the_run_is_said_and_not_raised(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    monkeypatch.setattr(temporary, "ELSEWHERE", ())
    _needs(monkeypatch, ())
    outcome = run_smoke(SmokeOptions())

    assert isinstance(outcome, SmokeFailure)
    assert (outcome.kind, outcome.rank) == ("timeout-start", None)
    assert "No such file or directory" in outcome.detail


@pytest.mark.parametrize(
    ("number", "status", "cleans"),
    [(signal.SIGTERM, 143, True), (signal.SIGINT, 130, True), (signal.SIGKILL, -9, False)],
)
def test_ranks_do_not_outlive_their_supervisor(tmp_path, number, status, cleans):
    """Not even one that is killed outright; then the kernel ends the ranks, and only the folder stays."""
    marker = f"GPUCHECK_TEST_RUN={uuid.uuid4()}"
    script = """
        import os
        from gpucheck.processes.signals import ended_by_signals
        from gpucheck.train.spec import Fault, SmokeOptions
        from gpucheck.train.smoke import train_in_ranks
        fault = Fault(kind="hang", rank=None, step=3)
        try:
            with ended_by_signals():
                train_in_ranks("tests.train.toy", SmokeOptions(fault=fault), dict(os.environ))
        except KeyboardInterrupt:
            raise SystemExit(130)
    """
    name, _, value = marker.partition("=")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), name: value}
    supervisor = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], env=environment, cwd=ROOT, preexec_fn=heed_interrupts
    )
    try:
        wait_until(lambda: _hanging(tmp_path) == 2)
        supervisor.send_signal(number)

        assert supervisor.wait(timeout=20) == status
        wait_until(lambda: processes_with(marker) == [])
    finally:
        end_processes_with(marker)
    assert (list(tmp_path.iterdir()) == []) is cleans


def _hanging(folder: Path) -> int:
    return sum('"step":3' in file.read_text() for file in folder.glob("gpucheck-*/smoke-*/progress-*.json"))
