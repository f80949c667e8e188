"""Several files in one round trip: in their order, whole or not at all, with owner and mode, only where they differ."""

import os
from pathlib import Path

import pytest

from tests.playbooks.modules import answer_of, module, shared
from tests.playbooks.stubs import mode

place = shared("place")
host_files = module("host_files")


def go(*rows, **modes):
    return answer_of(host_files, {"files": list(rows)}, **modes)


@pytest.fixture
def closed_umask():
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_files_and_the_folders_that_they_lack_are_made_readable_for_all_whatever_the_umask_is(tmp_path, closed_umask):
    path = tmp_path / "new/er/a.conf"

    assert go({"path": str(path), "content": "a\n"})["paths"] == [str(path)]

    assert path.read_text() == "a\n"
    assert (mode(path), mode(path.parent), mode(path.parent.parent)) == (0o644, 0o755, 0o755)


def test_a_second_run_changes_nothing(tmp_path):
    rows = [
        {"path": f"{tmp_path}/d", "state": "directory"},
        {"path": f"{tmp_path}/d/run", "content": "#!/bin/sh\n", "mode": "0755", "initramfs": False},
        {"path": f"{tmp_path}/gone", "state": "absent"},
    ]
    assert go(*rows)["changed"] is True
    written = (tmp_path / "d/run").stat().st_mtime_ns

    again = go(*rows)

    assert (again["changed"], again["paths"]) == (False, [])
    assert (tmp_path / "d/run").stat().st_mtime_ns == written
    assert mode(tmp_path / "d/run") == 0o755


def test_what_is_to_go_goes_and_of_a_link_not_its_target(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/a").write_text("a")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "file").write_text("a")
    names = [f"{tmp_path}/{name}" for name in ("link", "file", "never-there")]

    assert go(*({"path": name, "state": "absent"} for name in names))["paths"] == names[:2]
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept/a").exists()


@pytest.mark.parametrize("filled", [False, True])
def test_a_folder_is_never_removed(tmp_path, filled):
    """The module runs as root on every host of a fleet."""
    folder = tmp_path / "folder"
    folder.mkdir()
    if filled:
        (folder / "a").write_text("a")

    said = go({"path": str(folder), "state": "absent"})

    assert said["msg"].startswith(
        f"{folder} cannot be removed: it is a folder, and folders are not removed; nothing was"
    )
    assert folder.is_dir()
    assert (folder / "a").exists() is filled


def test_check_mode_says_the_same_and_changes_nothing(tmp_path):
    (tmp_path / "old").write_text("before\n")
    rows = [{"path": f"{tmp_path}/old", "content": "after\n"}, {"path": f"{tmp_path}/new/x", "content": "x"}]

    said = go(*rows, check_mode=True, diff=True)

    assert said["paths"] == [row["path"] for row in rows]
    assert [(one["before"], one["after"]) for one in said["diff"]] == [("before\n", "after\n"), ("", "x")]
    assert said["diff"][0]["before_header"] == f"{tmp_path}/old"
    assert (tmp_path / "old").read_text() == "before\n"
    assert not (tmp_path / "new").exists()


def test_an_error_names_the_file_the_reason_and_what_was_changed_before_it(tmp_path):
    """The rows after it are not begun: the order is a promise."""
    (tmp_path / "file").write_text("")
    first, broken, later = f"{tmp_path}/first", f"{tmp_path}/file/below", f"{tmp_path}/later"

    said = go(*({"path": path, "content": "x"} for path in (first, broken, later)))

    assert said["failed"] is True
    assert said["msg"].startswith(f"{broken} cannot be written: ")
    assert "Not a directory" in said["msg"]
    assert f"changed before it: {first}. " in said["msg"]
    assert not Path(later).exists()


@pytest.mark.parametrize("raised", [OSError(28, "No space left on device"), Exception("Could not replace it")])
def test_a_file_that_cannot_be_replaced_stays_whole_and_leaves_nothing_beside_it(tmp_path, monkeypatch, raised):
    """What a broken move raises depends on the version of Ansible."""
    path = tmp_path / "a"
    path.write_text("before")

    def broken(self, source, target):
        raise raised

    monkeypatch.setattr("tests.playbooks.modules.Module.atomic_move", broken)
    said = go({"path": str(path), "content": "after"})

    assert said["failed"] is True
    assert str(raised) in said["msg"]
    assert "nothing was changed before it" in said["msg"]
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("a", "before")]


@pytest.mark.parametrize(
    "path", ["/", "//", "/.", "/tmp/..", "/tmp/../", "//etc", "/etc", "/etc/", "/opt/../etc", "a", "", None]
)
@pytest.mark.parametrize("state", ["present", "directory", "absent"])
def test_no_row_can_mean_the_whole_system_or_a_folder_of_it(path, state):
    """Judged alone, never carried out: where the judgement is broken, this test fails and nothing is changed."""
    with pytest.raises(ValueError, match="must be absolute, and below a directory of /"):
        place.normal({"path": path, "state": state, "content": ""})
