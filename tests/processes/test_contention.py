"""Time in which a process waited for a processor."""

import shutil

import pytest

from gpucheck.processes.contention import LOOK_S, Waiting, ran_s, waited_s


def test_running_and_waiting_are_the_first_two_numbers_in_seconds(tmp_path):
    (tmp_path / "42").mkdir()
    (tmp_path / "42/schedstat").write_text("9000000000 1500000000 77\n")

    assert waited_s(42, tmp_path) == 1.5
    assert ran_s(42, tmp_path) == 9.0


@pytest.mark.parametrize("content", [None, "", "12", "a b c"])
def test_no_such_number_is_no_waiting(tmp_path, content):
    (tmp_path / "42").mkdir()
    if content is not None:
        (tmp_path / "42/schedstat").write_text(content)

    assert waited_s(42, tmp_path) == 0.0


def test_the_waiting_of_every_thread_counts_and_stays_when_it_ends(tmp_path):
    def at(**waited: float) -> None:
        shutil.rmtree(tmp_path / "42", ignore_errors=True)
        for task, seconds in waited.items():
            (tmp_path / "42/task" / task).mkdir(parents=True)
            (tmp_path / "42/task" / task / "schedstat").write_text(f"0 {seconds * 1e9:.0f} 1\n")

    waiting = Waiting([42, 43], tmp_path)
    found = []
    for number, state in enumerate([{"a": 5.0}, {"a": 6.0, "b": 2.0}, {"b": 2.5}, {}]):
        at(**state)
        found.append(waiting.look(100.0 + number * LOOK_S))

    assert found == [0.0, 3.0, 3.5, 3.5]
