"""Time in which a process waited for a processor."""

import pytest

from gpucheck.processes.contention import ran_s, waited_s


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
