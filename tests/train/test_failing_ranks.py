"""Every way in which a rank can fail ends in time, names rank, device, step and phase, and leaves nothing behind."""

import tempfile
from typing import Any

import pytest

from gpucheck.model.smoke import SmokeFailure, SmokeResult
from gpucheck.processes import temporary
from gpucheck.train import run_smoke, smoke
from gpucheck.train.spec import SmokeOptions, TrainingFault
from gpucheck.train.strategies import all_strategies
from tests.shared import sampled
from tests.train.conftest import STALL_S, Run


def failed(outcome: SmokeFailure | SmokeResult) -> SmokeFailure:
    assert isinstance(outcome, SmokeFailure), outcome
    return outcome


def where(outcome: SmokeFailure) -> tuple[object, ...]:
    return outcome.kind, outcome.rank, outcome.device, outcome.step, outcome.phase


def test_ranks_that_finish_give_a_result(run: Run):
    outcome = run()

    assert isinstance(outcome, SmokeResult)
    assert (outcome.devices, outcome.loss_last) == (("toy:0", "toy:1"), 0.1)


def test_a_rank_that_never_enters_the_collective_is_told_from_the_one_that_waits_for_it(run: Run):
    outcome = failed(run(TrainingFault(kind="hang", phase="backward", step=3), stall_s=STALL_S))

    assert where(outcome) == ("hang", 1, "toy:1", 3, "backward")
    assert outcome.seconds < 60, "before the deadline of the whole run"
    assert "in _act" in outcome.stack[0], "the stack shows the very call it hangs in"
    assert "train/rank.py" in outcome.stack[0]
    assert "/smoke-" not in outcome.stack[0], "the run's folder is gone: its path would lead nowhere"
    assert any(line.startswith("rank 0 (toy:0): step 3 of 10, allreduce for") for line in outcome.evidence)


WAYS: list[tuple[dict[str, Any], tuple[object, ...], dict[str, object]]] = [
    # No rank is at fault if all wait in one collective.
    (
        {"fault": TrainingFault(kind="hang", phase="allreduce", step=3, rank=None), "stall_s": STALL_S},
        ("hang", None, None, 3, "allreduce"),
        {},
    ),
    # SIGTERM does not reach a stopped process; only SIGKILL ends it.
    (
        {"toy": "stop", "stall_s": STALL_S},
        ("hang", 1, "toy:1", 3, "forward"),
        {"process_state": "T"},
    ),
    # A limit of the process or its cgroup refuses memory.
    ({"toy": "out-of-memory"}, ("raised", 1, "toy:1", 3, "forward"), {"error_type": "MemoryError"}),
    ({"toy": "crash"}, ("died", 1, "toy:1", 3, "forward"), {"signal": "SIGSEGV"}),
    # Its connections close first and its core is written after: the peer's exception comes before the crash.
    ({"toy": "slow-crash"}, ("died", 1, "toy:1", 3, "forward"), {"signal": "SIGSEGV"}),
    (
        {"toy": "raise"},
        ("raised", 1, "toy:1", 3, "forward"),
        {"error_type": "ArithmeticError", "detail": "ArithmeticError: injected failure"},
    ),
    ({"toy": "garbage"}, ("garbage", 1, "toy:1", 3, "forward"), {}),
    (
        {"toy": "leave"},
        ("garbage", 1, "toy:1", 3, "forward"),
        {"detail": "it ended with exit status 0 and left no report"},
    ),
    (
        {"toy": "leave-badly"},
        ("died", 1, "toy:1", 3, "forward"),
        {"detail": "ended with exit status 7 and no word"},
    ),
    ({"toy": "missing"}, ("missing-package", 1, "toy:1", 3, "forward"), {"missing": "gpucheck_no_such_package"}),
    # No hang of training, which has not begun.
    (
        {"fault": TrainingFault(kind="hang", phase="import"), "timeout_s": 1.5},
        ("timeout-start", 1, None, None, "import"),
        {},
    ),
]


@pytest.mark.parametrize(
    ("options", "expected", "fields"),
    sampled(WAYS, (0, 1, 3, 5, 6, 7, 10)),
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_failing_rank_is_named_with_device_step_and_phase(run: Run, options, expected, fields):
    outcome = failed(run(**options))

    assert where(outcome) == expected
    assert {name: getattr(outcome, name) for name in fields} == fields


@pytest.mark.parametrize("toy", ["crash", "raise"])
def test_failing_rank_shows_the_call_it_failed_in(run: Run, toy):
    assert "in misbehave" in failed(run(toy=toy)).stack[0]


def test_ranks_that_still_make_steps_at_the_deadline_do_not_hang(run: Run):
    outcome = failed(run(steps=100_000, timeout_s=1.5))

    assert (outcome.kind, outcome.rank) == ("timeout", None)


def test_a_killed_rank_is_named_and_not_the_one_that_lost_its_peer(run: Run):
    outcome = failed(run(TrainingFault(kind="die", phase="backward", step=3)))

    assert where(outcome) == ("died", 1, "toy:1", 3, "backward")
    assert outcome.signal == "SIGKILL"
    assert any("ConnectionError: Connection closed by peer 1" in line for line in outcome.evidence)


def test_a_long_message_is_one_line_and_a_little_evidence(run: Run):
    outcome = failed(run(toy="long-message"))

    assert outcome.detail == "RuntimeError: first line"
    assert sum("native frame" in line for line in outcome.evidence) == 7


def test_the_callers_folder_is_not_where_ranks_import_from(run: Run, tmp_path_factory, monkeypatch):
    """A training folder with a random.py or data.py of its own is the rule, not the exception."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "random.py").write_text("raise SystemExit('the wrong random')")
    (folder / "tempfile.py").write_text("raise SystemExit('the wrong tempfile')")
    monkeypatch.chdir(folder)

    assert isinstance(run(toy="imports"), SmokeResult)


def test_four_megabytes_of_noise_on_stdout_harm_nothing(run: Run):
    """Libraries print. A full pipe would block the rank, and what is printed is never taken for the answer."""
    assert isinstance(run(toy="noise"), SmokeResult)


def test_what_a_failed_rank_printed_is_evidence_without_control_characters(run: Run):
    outcome = failed(run(toy="noise, leave"))

    printed = [line for line in outcome.evidence if line.startswith("rank 1 printed: ")]
    assert printed[-1] == "rank 1 printed: \N{REPLACEMENT CHARACTER}noise"


def test_what_a_rank_started_goes_with_it(run: Run):
    """The run fixture looks for the grandchild afterwards."""
    assert where(failed(run(toy="family")))[0] == "died"


def _needs(monkeypatch, packages):
    known = {key: strategy._replace(packages=packages) for key, strategy in all_strategies().items()}
    monkeypatch.setattr(smoke, "all_strategies", lambda: known)


def test_a_missing_framework_is_found_before_any_process_is_started(monkeypatch):
    _needs(monkeypatch, ("gpucheck_no_such_package",))
    outcome = failed(run_smoke(SmokeOptions()))

    assert (outcome.kind, outcome.missing) == ("missing-package", "gpucheck_no_such_package")


def test_no_room_for_the_run_is_said_and_not_raised(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    monkeypatch.setattr(temporary, "ELSEWHERE", ())
    _needs(monkeypatch, ())
    outcome = failed(run_smoke(SmokeOptions()))

    assert (outcome.kind, outcome.rank) == ("timeout-start", None)
    assert "No such file or directory" in outcome.detail
