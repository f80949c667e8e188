"""The date and the files of a release: from git, from SOURCE_DATE_EPOCH, from an unpacked sdist."""

import os
import subprocess

import pytest

from release import source
from release.__main__ import main
from release.problem import ReleaseError, run

DATE = 1_700_000_000


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/run").write_text("#!/bin/sh\n")
    (tmp_path / "a/run").chmod(0o700)
    (tmp_path / "text").write_text("x\n")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "a/build").write_text("a program\n")
    for made in (".venv", "build", "x.egg-info", ".mypy_cache"):
        (tmp_path / made).mkdir()
        (tmp_path / made / "old").write_text("")
    return tmp_path


@pytest.fixture
def checkout(tree, monkeypatch):
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    when = {"GIT_AUTHOR_DATE": f"{DATE} +0000", "GIT_COMMITTER_DATE": f"{DATE} +0000"}
    git = ["git", "-C", tree, "-c", "user.name=n", "-c", "user.email=n@example.com"]
    for words in (["init", "--quiet"], ["add", "a", "text", "link"], ["commit", "--quiet", "-m", "x"]):
        subprocess.run([*git, *words], check=True, env={**os.environ, **when})
    return tree


def test_the_date_is_that_of_the_commit(checkout):
    assert source.epoch(checkout) == DATE


def test_source_date_epoch_comes_first(checkout, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1800000000")

    assert source.epoch(checkout) == 1_800_000_000


@pytest.mark.parametrize("given", ["", "yesterday", "-1", "1", "99999999999"])
def test_without_a_date_there_is_no_release(tree, monkeypatch, given):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", given)

    with pytest.raises(ReleaseError, match="Set SOURCE_DATE_EPOCH"):
        source.epoch(tree)


@pytest.mark.parametrize("kind", ["tree", "checkout"])
def test_the_files_are_those_of_the_project(request, kind):
    top = request.getfixturevalue(kind)

    assert source.tracked(top) == ["a/build", "a/run", "link", "text"]


def test_a_file_that_is_not_committed_is_counted(checkout):
    assert source.changed(checkout) == 0

    (checkout / "text").write_text("y\n")

    assert source.changed(checkout) == 1


def test_a_tree_that_differs_from_its_commit_gives_no_release(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(source, "changed", lambda _: 3)
    monkeypatch.setattr(source, "epoch", lambda _: DATE)
    monkeypatch.setattr("sys.argv", ["release", str(tmp_path / "out")])

    assert main() == 1
    assert "3 files differ from the commit" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_failing_program_is_quoted_and_a_missing_one_named():
    with pytest.raises(ReleaseError, match=r"making x: sh exited with 3:\nbroken"):
        run(["sh", "-c", "echo broken >&2; exit 3"], what="making x")
    with pytest.raises(ReleaseError, match="making x: /nowhere/program is not installed"):
        run(["/nowhere/program"], what="making x")
