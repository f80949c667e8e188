"""No engine, no rights, a dead daemon: one clear message each."""

from typing import Any, cast

import pytest

from gpucheck.lab import containers, system
from gpucheck.lab.system import LabError, root_prefix, run
from tests.playbooks.stubs import script


def test_a_daemon_that_dies_is_reported_with_its_reason(tmp_path, monkeypatch):
    """dockerd is a stand-in that writes why and exits."""
    text = "#!/bin/sh\necho 'failed to start daemon: no space left on device' >&2\nexit 1\n"
    script(tmp_path / "dockerd", text)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(system, "LOG", tmp_path / "dockerd.log")
    monkeypatch.setattr(system, "SOCKET", tmp_path / "docker.sock")
    monkeypatch.setattr(system, "root_prefix", lambda _purpose: [])

    with pytest.raises(LabError) as refused:
        system._start_daemon()

    assert "dockerd exited 1" in refused.value.message
    assert "failed to start daemon: no space left on device" in refused.value.message
    assert "the disk is full" in refused.value.message


def test_an_engine_that_is_named_but_does_not_answer_is_not_replaced(monkeypatch):
    """DOCKER_HOST names somebody's engine: starting another one here would be no answer to that."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")

    with pytest.raises(LabError, match="DOCKER_HOST") as refused:
        system.engine()
    assert refused.value.exit_code == 3


def test_without_root_and_sudo_it_says_who_can_do_it(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(LabError, match="starting the Docker engine needs root") as refused:
        root_prefix("starting the Docker engine")
    assert "do: run this as root" in refused.value.message


def test_packages_of_this_machine_are_installed_after_those_of_unattended_upgrades(monkeypatch):
    """On a new virtual machine it has apt's lock for minutes, and make provision ended there."""
    calls: list[list[str]] = []
    monkeypatch.setattr(system.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(system, "root_prefix", lambda _purpose: [])
    monkeypatch.setattr(system, "run", lambda words, **_: calls.append(list(words)))

    system.install(["docker.io"], "the lab hosts are containers")

    assert [words[-1] for words in calls] == ["update", "docker.io"]
    assert all("DPkg::Lock::Timeout=600" in words for words in calls)


def test_a_failing_program_is_named_with_the_end_of_its_output():
    with pytest.raises(LabError) as refused:
        run(["sh", "-c", "echo one; echo two >&2; exit 7"], what="trying", hint="try again")

    assert refused.value.message.splitlines() == [
        "trying failed: sh -c echo one; echo two >&2; exit 7 exited 7",
        "  | two",
        "do: try again",
    ]


class Ending:
    """A container that ends again and again, and that the engine starts each time."""

    def __init__(self, status: str) -> None:
        self.name, self.status, self.reloads = "unit-dnf", status, 0

    @property
    def attrs(self) -> dict[str, Any]:
        return {"RestartCount": self.reloads}

    def reload(self) -> None:
        self.reloads += 1

    def logs(self, tail: int) -> bytes:
        return b"Failed to allocate manager object"[: tail * 100]


@pytest.mark.parametrize(("status", "reloads"), [("exited", 1), ("restarting", containers.MOST_RESTARTS + 1)])
def test_a_host_that_ends_is_not_waited_for_as_long_as_a_busy_machine_may_need(monkeypatch, status, reloads):
    monkeypatch.setattr(containers.time, "sleep", lambda _: None)
    ending = Ending(status)

    with pytest.raises(LabError, match=rf"unit-dnf is {status}(?s:.*)Failed to allocate manager object"):
        containers.wait_for(cast("Any", ending), "true", what="booting lab-dnf")

    assert ending.reloads == reloads
