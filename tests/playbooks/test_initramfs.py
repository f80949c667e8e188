"""The initramfs and its notes: rebuilt with the system's own program, and a reboot is never forgotten."""

from types import SimpleNamespace

import pytest

from tests.playbooks.modules import answer_of, module, programs, shared

task = module("initramfs")
plan = shared("host_plan")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A host whose notes are in tmp_path; .calls is what was run, .words and .images what it has."""

    due, pending = tmp_path / "run/reboot-required", tmp_path / "initramfs-pending"
    words = ["/usr/sbin/update-initramfs", "-u"]
    found = SimpleNamespace(calls=[], words=words, images=True, broken=False, due=due, pending=pending)

    def run(argv, **_):
        found.calls.append(argv)
        return (1, "", "no space left\n") if found.broken else (0, "", "")

    pending.write_text("/etc/modprobe.d/nvidia.conf\n")
    programs(monkeypatch, run)
    monkeypatch.setattr(plan, "initramfs", lambda _: (found.words, found.images))
    monkeypatch.setattr(plan, "REBOOT_REQUIRED", str(due))
    monkeypatch.setattr(plan, "INITRAMFS_PENDING", str(pending))
    monkeypatch.setattr(task, "compare", lambda *_: {"reboot": [due.read_text()] if due.exists() else []})
    return found


def go(**modes):
    return answer_of(task, {"host": "node01", "plan": {}}, **modes)


@pytest.mark.parametrize(
    ("family", "words"),
    [("dpkg", ["update-initramfs", "-u", "-k", "all"]), ("rpm", ["dracut", "--force", "--regenerate-all"])],
)
def test_each_family_has_a_program_that_rebuilds_all_of_them(monkeypatch, family, words):
    monkeypatch.setattr(plan.shutil, "which", lambda name: f"/sbin/{name}")
    assert plan.initramfs(family)[0] == [f"/sbin/{words[0]}", *words[1:]]

    monkeypatch.setattr(plan.shutil, "which", lambda _: None)
    assert plan.initramfs(family)[0] == []


def test_it_is_rebuilt_and_the_reboot_noted(machine):
    said = go()

    assert machine.calls == [machine.words]
    assert said["reboot"] == ["module files changed since the last boot\n"]
    assert not machine.pending.exists()


def test_a_host_without_an_initramfs_only_has_to_reboot(machine):
    machine.words, machine.images = [], False

    assert go()["changed"] is True
    assert machine.calls == []
    assert machine.due.exists()


@pytest.mark.parametrize(
    ("program", "broken", "words"),
    [
        ([], False, "neither update-initramfs nor dracut is installed"),
        (["dracut", "--force"], True, "dracut --force: exit 1: no space left"),
    ],
)
def test_where_it_cannot_be_rebuilt_the_next_run_still_knows(machine, program, broken, words):
    machine.words, machine.broken = program, broken
    said = go()

    assert said["msg"].startswith("node01: the initramfs cannot be rebuilt: ")
    assert words in said["msg"]
    assert said["msg"].endswith("The host was not rebooted; repair that, then run again.")
    assert machine.pending.exists()
    assert not machine.due.exists()


def test_check_mode_rebuilds_nothing(machine):
    assert go(check_mode=True)["changed"] is True
    assert machine.calls == []
    assert machine.pending.exists()
