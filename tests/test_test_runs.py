"""What tests share and fork: made once a run, and a command as a process of its own."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.forked import gpucheck
from tests.shared import made_once


class Factory:
    """A test run whose temporary folder is this one."""

    def __init__(self, folder):
        self.getbasetemp = lambda: folder


def test_what_is_shared_is_made_by_the_first_and_found_by_the_others(monkeypatch, tmp_path):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    made = []

    def make(folder):
        made.append(folder)
        (folder / "file").touch()

    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: made_once(Factory(tmp_path), "name", make), range(8)))

    assert (folders, made) == ({tmp_path / "name"}, [tmp_path / "name"])
    assert (tmp_path / "name/file").exists()


def test_what_could_not_be_made_is_made_again_from_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw1")
    (tmp_path / "gw1").mkdir()

    def fail(folder):
        (folder / "half").touch()
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        made_once(Factory(tmp_path / "gw1"), "name", fail)
    folder = made_once(Factory(tmp_path / "gw1"), "name", lambda folder: (folder / "whole").touch())

    assert folder == tmp_path / "name", "the folder of the whole run"
    assert os.listdir(folder) == ["whole"]  # noqa: PTH208


def test_a_forked_command_has_its_own_folder_environment_input_and_status(tmp_path):
    done = gpucheck("diagnose", "-", "--format", "json", cwd=tmp_path, given=b"\xff\xfe")
    assert (done.returncode, done.stdout) == (64, "")

    code = "import os, sys; print(os.getcwd(), os.environ['WORD']); print('words', file=sys.stderr); sys.exit(7)"
    words = ("simulate", "no-gpu", "--", "python3", "-c", code)
    done = gpucheck(*words, cwd=tmp_path, env={**os.environ, "WORD": "own"})
    assert (done.returncode, done.stdout) == (7, f"{tmp_path} own\n")
    assert done.stderr.splitlines()[-1] == "words"


def test_a_forked_command_that_does_not_end_is_ended(tmp_path):
    with pytest.raises(subprocess.TimeoutExpired):
        gpucheck("simulate", "no-gpu", "--", "sleep", "100", cwd=tmp_path, timeout_s=0.5)

    assert gpucheck("--version").returncode == 0, "the next one runs"
