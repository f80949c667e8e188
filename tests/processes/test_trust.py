"""What is believed: files and directories that no other user made or may write."""

import os

import pytest

from gpucheck.processes.trust import distrust, programs_of_root

STRANGER = 65534
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users and devices")


FOREIGN, WRITABLE = f"belongs to user {STRANGER}", "can be written by other users"


@root
@pytest.mark.parametrize(
    ("part", "user", "mode", "reason"),
    [
        ("a", 0, 0o755, None),
        ("a", 0, 0o1777, None),
        ("a", 0, 0o777, WRITABLE),
        ("a", 0, 0o775, WRITABLE),
        ("a", STRANGER, 0o755, FOREIGN),
        ("a/b", STRANGER, 0o700, FOREIGN),
        ("a/b", 0, 0o775, WRITABLE),
        ("a/b", 0, 0o1777, "is sticky"),
        ("a/b", 0, 0o750, None),
        ("a/file", 0, 0o644, None),
        ("a/file", 0, 0o666, WRITABLE),
        ("a/file", STRANGER, 0o644, FOREIGN),
    ],
)
def test_every_part_of_the_path_counts(tmp_path, part, user, mode, reason):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/file").touch()
    (tmp_path / part).chmod(mode)
    os.chown(tmp_path / part, user, user)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    last = "file" if part == "a/file" else "b"

    for way in ("a", "link/../a", "link"):
        found = distrust(tmp_path / way / last)
        assert (found is None) is (reason is None), found
        assert reason is None or f"{tmp_path / part} {reason}" in found


@root
def test_a_link_of_another_user_is_not_followed(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    assert distrust(tmp_path / "link") is None

    os.chown(tmp_path / "link", STRANGER, STRANGER, follow_symlinks=False)
    assert distrust(tmp_path / "link") == f"{tmp_path / 'link'} {FOREIGN}"


def test_links_in_a_circle_are_an_error(tmp_path):
    (tmp_path / "link").symlink_to("link")
    with pytest.raises(OSError, match="too many links"):
        distrust(tmp_path / "link")


@root
def test_root_runs_programs_of_root_alone(tmp_path):
    shared, foreign, writable, good = (tmp_path / name for name in ("shared", "foreign", "writable", "good"))
    for place in (shared, foreign, writable, good):
        place.mkdir()
    shared.chmod(0o1777)
    os.chown(foreign, STRANGER, STRANGER)
    writable.chmod(0o777)
    linked = tmp_path / "linked"
    linked.symlink_to(foreign)
    missing = tmp_path / "missing"

    path = ":".join(map(str, ("", ".", "bin", "/usr/bin", shared, foreign, writable, linked, missing, good)))
    kept, reasons = programs_of_root(path)

    assert kept == f"/usr/bin:{good}"
    assert len(reasons) == 6
    assert reasons[0] == "an empty part of PATH depends on the working directory"
    assert f"{shared} is sticky" in reasons
    assert f"{writable} can be written by other users (mode 777)" in reasons
