"""Files of the controller that two runs write at once, and what a killed run leaves."""

import os
import time
from multiprocessing import get_context
from pathlib import Path

from tests.playbooks.modules import plugin

files = plugin("plugin_utils", "files")
TEXTS = [letter * 100_000 for letter in "ab"]


def writes(path: str, text: str) -> None:
    for _ in range(100):
        files.write(Path(path), text)


def test_two_runs_that_write_one_file_leave_either_text_and_nothing_else(tmp_path):
    path, fork = tmp_path / "plan.json", get_context("fork")
    files.write(path, TEXTS[0])
    running = [fork.Process(target=writes, args=(str(path), text)) for text in TEXTS]
    for process in running:
        process.start()
    seen = set()
    while any(process.is_alive() for process in running):
        seen.add(path.read_text())
    for process in running:
        process.join()

    assert [process.exitcode for process in running] == [0, 0]
    assert seen <= set(TEXTS)
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_run_left_is_removed_and_what_a_running_one_writes_is_not(tmp_path):
    old, new = tmp_path / ".0123456789abcdef.partial", tmp_path / ".fedcba9876543210.partial"
    for path in (old, new):
        path.touch()
    before = time.time() - 2 * files.UNFINISHED_S
    os.utime(old, (before, before))

    files.write(tmp_path / "plan.json", "x")

    assert sorted(path.name for path in tmp_path.iterdir()) == [new.name, "plan.json"]
