"""What an image's labels say of the checkout and the time that made it."""

import subprocess
import time
from types import SimpleNamespace

import pytest

from gpucheck.images import context
from gpucheck.images.context import commit
from gpucheck.lab.system import LabError


def test_an_origin_with_a_login_or_a_path_is_not_published(tmp_path, monkeypatch):
    answers = {"log": "abc", "config": "https://me:secret@host/r", "status": ""}
    monkeypatch.setattr(subprocess, "run", lambda words, **_: SimpleNamespace(returncode=0, stdout=answers[words[3]]))

    assert commit(tmp_path) == {"revision": "abc"}


def test_a_changed_checkout_is_not_its_commit(tmp_path):
    def git(*words):
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)

    git("init", "--quiet")
    (tmp_path / "file").touch()
    git("add", "file")
    git("commit", "--quiet", "--message", "one")
    clean = commit(tmp_path)["revision"]
    (tmp_path / "file").write_text("changed")

    assert len(clean) == 40
    assert commit(tmp_path)["revision"] == f"{clean}-dirty"


def test_created_is_the_time_of_the_build_and_given_where_bytes_must_repeat(monkeypatch):
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert abs(context.build_time().timestamp() - time.time()) < 5
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert context.build_time().isoformat() == "1970-01-01T00:00:00+00:00"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "today")
    with pytest.raises(LabError, match="SOURCE_DATE_EPOCH='today' is not a number of seconds"):
        context.build_time()
