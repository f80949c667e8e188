"""What is believed: files and directories that no other user made or may write."""

import os
from pathlib import Path

import pytest

from gpucheck.processes.trust import distrust, programs_of_root

STRANGER = 65534
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users and devices")


@pytest.fixture
def folder(tmp_path):
    """A directory as /tmp is."""
    found = tmp_path / "shared"
    found.mkdir()
    found.chmod(0o1777)
    return found


def of_stranger(path):
    path.touch()
    os.chown(path, STRANGER, STRANGER)


def in_folder_of_stranger(path):
    path.touch()
    os.chown(path.parent, STRANGER, STRANGER)


def in_writable_folder(path):
    path.touch()
    path.parent.chmod(0o777)


@root
@pytest.mark.parametrize(
    ("plant", "reason"),
    [
        (Path.touch, None),
        (of_stranger, f"belongs to user {STRANGER}"),
        (in_folder_of_stranger, f"belongs to user {STRANGER}"),
        (in_writable_folder, "can be written by other users"),
        (lambda path: (path.touch(), path.chmod(0o666)), "can be written by other users"),
    ],
)
def test_what_others_may_write_is_not_believed(folder, plant, reason):
    plant(folder / "library")
    found = distrust(folder / "library")

    assert (found is None) is (reason is None), found
    assert reason is None or reason in found


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
