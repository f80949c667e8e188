"""Temporary folders of a run: private, gone at the end, and removed by a later run where a run was killed."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpucheck.processes import temporary
from gpucheck.processes.temporary import MARKER, private_environment, temporary_folder

HOLD = """
import sys, time
from gpucheck.processes.temporary import temporary_folder
with temporary_folder("smoke") as folder:
    (folder / "progress").write_text("3")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def base(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def running(base):
    """A run that SIGKILL ends in the middle, at the end of the block; yields its folder."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(base)}
    ) as run:
        yield Path(run.stdout.readline().strip())
        run.kill()


def killed_run(base):
    """The folder of a run that was killed, which is still there."""
    with running(base) as folder:
        pass
    assert (folder / "progress").exists()
    return folder.parent


def test_folders_are_private_and_removed_at_the_end(base):
    with temporary_folder("smoke") as one, temporary_folder("smoke") as other:
        assert one != other
        assert one.parent.parent == other.parent.parent == base
        assert {path.stat().st_mode & 0o777 for path in (one, other, one.parent)} == {0o700}
        (one / "deep").mkdir()
    assert list(base.iterdir()) == []


def test_a_killed_runs_folder_is_removed_by_the_next_run(base):
    folder = killed_run(base)

    with temporary_folder("smoke"):
        assert not folder.exists()
    assert list(base.iterdir()) == []


def test_a_folder_of_a_run_that_lives_stays(base):
    with running(base) as folder, temporary_folder("smoke"):
        assert (folder / "progress").read_text() == "3"


def test_what_is_no_folder_of_a_run_is_never_removed(base, tmp_path_factory):
    """Not by its name alone, and not through a link."""
    target = tmp_path_factory.mktemp("target")
    (target / MARKER).touch()
    (target / "data").touch()
    (base / "gpucheck-abcdefgh").symlink_to(target)
    mine = base / "gpucheck-lab_data"
    mine.mkdir(mode=0o700)
    (mine / "data").touch()
    linked = base / "gpucheck-linkmark"
    linked.mkdir()
    (linked / MARKER).symlink_to(target / "data")
    (base / "gpucheck-simulator").mkdir()
    with temporary_folder("smoke"):
        pass

    assert sorted(path.name for path in base.iterdir()) == [
        "gpucheck-abcdefgh", "gpucheck-lab_data", "gpucheck-linkmark", "gpucheck-simulator"
    ]  # fmt: skip
    assert (target / "data").exists()
    assert (mine / "data").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make folders of another user")
def test_a_folder_of_another_user_is_not_touched(base):
    folder = killed_run(base)
    os.chown(folder, 65534, 65534)
    with temporary_folder("smoke"):
        pass

    assert (folder / MARKER).exists()


def test_a_run_that_another_takes_for_a_leftover_makes_a_new_folder(base, monkeypatch):
    """Between mkdtemp and the lock."""
    made, mkdtemp = [], temporary.tempfile.mkdtemp

    def removed_at_once(**options):
        made.append(Path(mkdtemp(**options)))
        if len(made) == 1:
            made[0].rmdir()
        return str(made[-1])

    monkeypatch.setattr(temporary.tempfile, "mkdtemp", removed_at_once)
    with temporary_folder("smoke") as folder:
        assert len(made) == 2
        assert folder.parent == made[1]


def test_a_temporary_folder_that_others_may_change_is_not_used(base, capsys, monkeypatch, tmp_path_factory):
    """There another user could put a folder of his own in the place of ours."""
    fallback = tmp_path_factory.mktemp("fallback")
    monkeypatch.setattr(temporary, "ELSEWHERE", (fallback,))
    base.chmod(0o777)
    with temporary_folder("smoke") as folder:
        assert folder.parent.parent == fallback
    assert f"{base} is not used for temporary files: {base} can be written by other users" in capsys.readouterr().err

    base.chmod(0o1777)
    with temporary_folder("smoke") as folder:
        assert folder.parent.parent == base


def test_without_a_place_the_error_says_what_to_do(base, monkeypatch):
    monkeypatch.setattr(temporary, "ELSEWHERE", ())
    base.chmod(0o777)
    with pytest.raises(OSError, match=r"no place for temporary files: .* Set TMPDIR to a directory of your own"):
        temporary_folder("smoke").__enter__()
    base.chmod(0o700)


def test_children_keep_what_they_compile_in_the_folder_of_the_run(base, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    with temporary_folder("s") as folder:
        chosen = private_environment(folder, {"HOME": str(home)})
        assert set(chosen) >= {"TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR"} or (
            len(str(folder)) > temporary.LONGEST_TMPDIR and "TMPDIR" not in chosen
        )
        assert all(Path(path).is_relative_to(folder) and Path(path).is_dir() for path in chosen.values())
        assert "CUDA_CACHE_PATH" not in chosen, "what CUDA compiled for this user before is used again"

        home.chmod(0o777)
        foreign = private_environment(folder, {"HOME": str(home)})
        assert Path(foreign["CUDA_CACHE_PATH"]).is_relative_to(folder)
        assert Path(foreign["CUPY_CACHE_DIR"]).is_relative_to(folder)
        assert "CUDA_CACHE_PATH" in private_environment(folder, {"CUDA_CACHE_PATH": "/tmp/not-there"})
