"""Whether a host has the site's key for Secure Boot, and its firmware knows it."""

import pytest

from tests.playbooks.modules import shared
from tests.playbooks.stand_ins import program

mok = shared("mok")


@pytest.fixture
def plan(tmp_path):
    for name in ("mok.key", "mok.der"):
        (tmp_path / name).write_text("x")
    return {"mok": {"key": str(tmp_path / "mok.key"), "certificate": str(tmp_path / "mok.der")}}


@pytest.mark.parametrize(
    ("told", "status", "answer"),
    [
        ("/etc/site/mok.der is already enrolled\n", 1, (True, "")),
        ("/etc/site/mok.der is not enrolled\n", 0, (False, "/etc/site/mok.der is not enrolled")),
        ("SKIP: /etc/site/mok.der is already in the enrollment request\n", 1, (False, "its enrollment waits for")),
        ("", 1, (None, "mokutil prints nothing")),
        ("EFI variables are not supported on this system\n", 255, (None, "mokutil: exit 255")),
    ],
)
def test_what_mokutil_says(tools, plan, told, status, answer):
    program(tools, "mokutil", told, status)

    found = mok.state(plan, True)

    assert found["enrolled"] is answer[0]
    assert found["why"].startswith(answer[1])
    assert found["missing"] == []


def test_without_mokutil_it_is_not_known(tools, plan):
    assert mok.state(plan, None)["enrolled"] is None


def test_without_secure_boot_nobody_is_asked(tools, plan):
    program(tools, "mokutil", "", 99)

    assert mok.state(plan, False) == {
        "certificate": plan["mok"]["certificate"], "missing": [], "enrolled": None, "why": "",
    }  # fmt: skip


def test_files_that_are_not_there_are_named(tools, plan, tmp_path):
    (tmp_path / "mok.key").unlink()

    assert mok.state(plan, True)["missing"] == [plan["mok"]["key"]]
    assert mok.state({}, True) is None
