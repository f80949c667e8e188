"""What is believed: files of the user who runs, which no other user made, may write, or reaches by another name."""

import os
import socket
from pathlib import Path

import pytest

from gpucheck.processes.trust import DistrustedError, open_own, programs_of_root

STRANGER = 65534
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users and devices")


@pytest.fixture
def folder(tmp_path):
    """A directory as /tmp is."""
    found = tmp_path / "shared"
    found.mkdir()
    found.chmod(0o1777)
    return found


def own(path, mode=0o640):
    path.write_bytes(b"state")
    path.chmod(mode)
    return path


def link(path):
    path.symlink_to(own(path.with_name("target")))


def dangling(path):
    path.symlink_to(path.with_name("made-by-root"))


def second_name(path):
    os.link(own(path.with_name("first")), path)


def bound(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(f"/proc/self/fd/{os.open(path.parent, os.O_RDONLY)}/{path.name}")


def of_stranger(path):
    os.chown(own(path), STRANGER, STRANGER)


def in_folder_of_stranger(path):
    own(path)
    os.chown(path.parent, STRANGER, STRANGER)


def in_writable_folder(path):
    own(path)
    path.parent.chmod(0o777)


PLANTED = {
    "link": (link, "not a regular file"),
    "dangling link": (dangling, "not a regular file"),
    "link to a device": (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
    "second name": (second_name, "2 names"),
    "FIFO": (os.mkfifo, "not a regular file"),
    "socket": (bound, "not a regular file"),
    "directory": (Path.mkdir, "not a regular file"),
    "writable by the group": (lambda path: own(path, 0o660), "can be written by other users"),
    "writable by all": (lambda path: own(path, 0o606), "can be written by other users"),
}
BY_ROOT = {
    "device": (lambda path: os.mknod(path, 0o20600, os.makedev(1, 3)), "not a regular file"),
    "of a stranger": (of_stranger, f"belongs to user {STRANGER}"),
    "in a stranger's directory": (in_folder_of_stranger, f"belongs to user {STRANGER}"),
    "in a directory without sticky bit": (in_writable_folder, "can be written by other users"),
}
ALL = [pytest.param(*row, id=name) for name, row in PLANTED.items()]
ALL += [pytest.param(*row, id=name, marks=root) for name, row in BY_ROOT.items()]


@pytest.mark.parametrize(("plant", "reason"), ALL)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR | os.O_CREAT], ids=["state", "lock"])
def test_what_others_left_is_not_opened_and_stays_as_it_is(folder, plant, reason, flags):
    path = folder / "gpucheck-burn-in.json"
    plant(path)
    before = sorted((one.name, one.lstat().st_size, one.lstat().st_mode) for one in folder.iterdir())
    with pytest.raises(DistrustedError, match=reason):
        open_own(path, flags)
    assert sorted((one.name, one.lstat().st_size, one.lstat().st_mode) for one in folder.iterdir()) == before


def test_ones_own_file_is_opened_and_a_missing_one_is_made(folder):
    path = folder / "state"
    with pytest.raises(FileNotFoundError):
        open_own(path, os.O_RDONLY)
    os.close(open_own(path, os.O_RDWR | os.O_CREAT, 0o640))
    assert path.stat().st_mode & 0o777 == 0o640
    own(path)
    with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
        assert file.read() == b"state"


@root
def test_root_runs_programs_of_root_alone(tmp_path, folder):
    foreign, writable, good = (tmp_path / name for name in ("foreign", "writable", "good"))
    for place in (foreign, writable, good):
        place.mkdir()
    os.chown(foreign, STRANGER, STRANGER)
    writable.chmod(0o777)
    linked = tmp_path / "linked"
    linked.symlink_to(foreign)
    missing = tmp_path / "missing"

    path = ":".join(map(str, ("", ".", "bin", "/usr/bin", folder, foreign, writable, linked, missing, good)))
    kept, reasons = programs_of_root(path)

    assert kept == f"/usr/bin:{good}"
    assert len(reasons) == 6
    assert reasons[0] == "an empty part of PATH depends on the working directory"
    assert f"{folder} is sticky" in reasons
    assert f"{writable} can be written by other users (mode 777)" in reasons
