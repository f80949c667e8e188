"""One run at a time on a host: a lease that names its holder, lives through reboots and ends with its run."""

import contextlib
import os
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.playbooks.modules import PLAYBOOKS, action, shared
from tests.playbooks.test_rollout import PLAY
from tests.playbooks.test_runs import BIN, environment
from tests.shared import END_S

lock = shared("lock")
plugin = action("host_lock")
HOLDER = {"playbook": "provision.yml", "user": "alice", "controller": "ctl7", "pid": 4711, "started": "2026-11-22"}


def a_run(name, **more):
    return {**HOLDER, "id": name, **more}


@pytest.fixture
def clock(tmp_path, monkeypatch):
    """A host: .at(seconds since boot, boot) sets it; .folder is that of the lease."""

    def at(uptime, boot="boot-1"):
        (tmp_path / "uptime").write_text(f"{uptime} 1.0\n")
        (tmp_path / "boot").write_text(f"{boot}\n")

    monkeypatch.setattr(lock, "UPTIME", str(tmp_path / "uptime"))
    monkeypatch.setattr(lock, "BOOT_ID", str(tmp_path / "boot"))
    at(1000)
    folder = str(tmp_path / "lease")
    return SimpleNamespace(folder=folder, at=at, take=partial(lock.take, lease_s=600, folder=folder))


def test_a_lease_lapses_and_a_step_of_the_run_renews_it(clock, monkeypatch):
    assert clock.take(a_run("a")) is None
    clock.at(1500)
    monkeypatch.setenv(lock.VARIABLE, f"a {clock.folder}")

    assert lock.renew() is None
    clock.at(2000)
    assert clock.take(a_run("b")) == a_run("a")
    clock.at(2101)
    assert clock.take(a_run("b")) is None
    assert lock.renew() == a_run("b")  # the first run learns that it lost the host


def test_a_step_before_a_long_wait_renews_the_lease_for_as_long(clock, monkeypatch):
    """The wait is one program on the controller. A later step does not shorten it."""
    clock.take(a_run("a"))
    monkeypatch.setenv(lock.VARIABLE, f"a {clock.folder}")

    assert lock.renew(5000) is None
    assert lock.renew() is None
    clock.at(5900)
    assert clock.take(a_run("b")) == a_run("a")
    clock.at(6001)
    assert clock.take(a_run("b")) is None


def test_a_reboot_keeps_the_lease_of_the_run_for_as_long_as_it_was_given(clock):
    clock.take(a_run("a"))
    clock.at(50, "boot-2")

    assert clock.take(a_run("b")) == a_run("a")
    assert clock.take(a_run("a")) is None
    clock.at(700, "boot-3")
    assert clock.take(a_run("b")) is None


def test_a_run_that_is_known_to_be_dead_is_replaced(clock):
    clock.take(a_run("a"))

    assert clock.take(a_run("b"), dead="other") == a_run("a")
    assert clock.take(a_run("b"), dead="a") is None


@pytest.mark.parametrize("name", ["run.lock", "run.lock.partial", ".run.guard"])
def test_a_link_in_the_place_of_a_lease_is_not_written_through(clock, tmp_path, name):
    """Where a site has chosen a folder in which others may write."""
    Path(clock.folder).mkdir()
    (tmp_path / "victim").write_text("precious")
    (Path(clock.folder) / name).symlink_to(tmp_path / "victim")

    with contextlib.suppress(OSError):
        clock.take(a_run("a"))
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_step_whose_run_lost_the_host_changes_nothing(clock, monkeypatch):
    clock.take(a_run("b"))
    monkeypatch.setenv(lock.VARIABLE, f"a {clock.folder}")
    call = shared("call")

    class Module:
        def run_command(self, *_, **__):
            pytest.fail("a program was run")

    with pytest.raises(call.Refused, match=r"Another run is changing this host: provision\.yml by alice on ctl7"):
        call.call(Module(), ["apt-get", "install"])


@pytest.mark.parametrize(
    ("change", "dead"),
    [
        ({}, False),
        ({"ticks": "1"}, True),  # the number was given to another process
        ({"pid": 2**22 + 1}, True),
        ({"pid": 2**22 + 1, "place": "another machine"}, False),
        ({"ticks": "", "place": ""}, False),  # macOS
    ],
)
def test_only_a_run_of_this_very_kernel_can_be_known_to_be_dead(change, dead):
    me = {"pid": os.getpid(), "ticks": plugin.started(os.getpid()), "place": plugin.place()}

    assert plugin.is_dead({**me, **change}) is dead


CHANGE = """
- name: Work on it
  ansible.builtin.shell:
    cmd: "echo {{{{ who }}}} begins >> log; while [ -e held ]; do sleep 0.2; done; echo {{{{ who }}}} ends >> log"
    chdir: {folder}
"""


class Site:
    """A host, and runs that change it at the same time."""

    def __init__(self, folder):
        self.folder, self.lease = folder, folder / "locks/n1/run.lock"
        (folder / "provision.yml").write_text(PLAY.format(playbooks=PLAYBOOKS, folder=folder, serial=1))
        shutil.copy(PLAYBOOKS / "tasks/rollout.yml", folder)
        for name in ("prepare.yml", "quick.yml"):
            (folder / name).write_text("[]\n")
        (folder / "apply.yml").write_text(CHANGE.format(folder=folder))
        (folder / "hosts.yml").write_text("gpu: {hosts: {n1: }}\n")

    def start(self, who, *more, held=False):
        """held: its change ends when the file is removed."""
        if held:
            (self.folder / "held").touch()
        words = ["-e", f"who={who}", *(word for value in more for word in ("-e", value))]
        return subprocess.Popen(
            [str(BIN / "ansible-playbook"), "-i", self.folder / "hosts.yml", *words, self.folder / "provision.yml"],
            cwd=PLAYBOOKS.parent,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def at_work(self, who):
        """Wait until this run changes the host."""
        end = time.monotonic() + END_S
        while f"{who} begins" not in self.log():
            assert time.monotonic() < end, "the run never began"
            time.sleep(0.1)

    def log(self):
        return (self.folder / "log").read_text().splitlines() if (self.folder / "log").exists() else []


def ended(process):
    out, _ = process.communicate(timeout=END_S)
    return " ".join(out.split())


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


@pytest.mark.slow
def test_of_two_runs_at_once_one_is_refused_by_name(site):
    first = site.start("first", held=True)
    site.at_work("first")
    second = ended(site.start("second"))
    (site.folder / "held").unlink()

    assert "END n1 stopped: n1: another run is changing this host: provision.yml by " in second
    assert f"(process {first.pid}), started 20" in second
    assert "Nothing was changed." in second
    assert "END n1 changed" in ended(first)
    assert site.log() == ["first begins", "first ends"]
    assert not site.lease.exists()


@pytest.mark.slow
def test_a_run_that_fails_releases_the_host(site):
    (site.folder / "apply.yml").write_text("- name: Break down\n  ansible.builtin.fail: {msg: no more space}\n")

    assert "END n1 failed: n1: Break down: no more space" in ended(site.start("first"))
    assert not site.lease.exists()
    assert (site.lease.parent / ".run.guard").exists()
