"""A file appears complete or not at all, is on the disk before it has its name, and is not for everybody."""

import errno
import os
import stat

import pytest

from gpucheck.processes import atomic
from gpucheck.processes.atomic import SHARED, write_atomic


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize(
    ("taken", "private", "shared"), [(0o022, 0o640, 0o644), (0o077, 0o600, 0o600), (0, 0o640, 0o644)]
)
def test_the_mode_is_never_more_than_the_umask_leaves(tmp_path, umask, taken, private, shared):
    umask(taken)
    write_atomic(tmp_path / "report", b"x")
    write_atomic(tmp_path / "lock", b"x", mode=SHARED)

    assert (mode(tmp_path / "report"), mode(tmp_path / "lock")) == (private, shared)


def test_the_content_is_on_the_disk_before_the_name_and_the_name_after(tmp_path, monkeypatch):
    order = []
    fsync, replace = os.fsync, atomic.Path.replace
    monkeypatch.setattr(
        os, "fsync", lambda fd: order.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file") or fsync(fd)
    )
    monkeypatch.setattr(atomic.Path, "replace", lambda self, to: order.append("name") or replace(self, to))

    write_atomic(tmp_path / "a", b"x")

    assert order == ["file", "name", "folder"]


@pytest.mark.parametrize("step", ["fsync", "write"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step):
    old = tmp_path / "a"
    old.write_text("old")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)

    def written():
        with atomic.replacing(old) as file:
            file.write(b"new")
            if step == "write":
                full()

    with pytest.raises(OSError, match="No space left"):
        written()

    assert old.read_text() == "old"
    assert list(tmp_path.iterdir()) == [old]


def test_a_link_is_replaced_and_its_target_is_not(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)

    write_atomic(link, b"new")

    assert (target.read_text(), link.read_text(), link.is_symlink()) == ("old", "new", False)


def test_a_planted_name_is_not_written_through(tmp_path, monkeypatch):
    """The partial file's name is not to be guessed, and is refused where it exists all the same."""
    monkeypatch.setattr(atomic.os, "urandom", lambda _: b"guessed!")
    (tmp_path / f".gpucheck.{b'guessed!'.hex()}").symlink_to(tmp_path / "victim")

    with pytest.raises(FileExistsError):
        write_atomic(tmp_path / "a", b"x")

    assert not (tmp_path / "victim").exists()


def test_a_file_system_that_cannot_synchronise_a_folder_is_no_error(tmp_path, monkeypatch):
    fsync = os.fsync

    def refuse_folders(number):
        if stat.S_ISDIR(os.fstat(number).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(number)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    write_atomic(tmp_path / "a", b"x")

    assert (tmp_path / "a").read_bytes() == b"x"
