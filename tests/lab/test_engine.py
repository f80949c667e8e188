"""No engine, no rights, a dead daemon: one clear message each."""

import pytest

from gpucheck.lab import engine, system
from gpucheck.lab.system import LabError, failed, root_prefix, run

DEAD = """time="2026-11-20T10:00:00" level=info msg="Starting up"
time="2026-11-20T10:00:01" level=warning msg="old kernel"
failed to start daemon: Error initializing network controller: iptables not found
"""


def test_the_daemons_log_is_cut_to_its_reason():
    assert engine.reasons(DEAD) == ("failed to start daemon: Error initializing network controller: iptables not found")


def test_a_log_without_a_reason_shows_its_end():
    assert engine.reasons("\n".join(f"line {n}" for n in range(20))).splitlines()[-1] == "line 19"


def test_a_daemon_that_dies_is_reported_with_its_reason(tmp_path, monkeypatch):
    """dockerd is a stand-in that writes why and exits."""
    program = tmp_path / "dockerd"
    program.write_text("#!/bin/sh\necho 'failed to start daemon: no space left on device' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(engine, "LOG", tmp_path / "dockerd.log")
    monkeypatch.setattr(engine, "SOCKET", tmp_path / "docker.sock")
    monkeypatch.setattr(engine, "root_prefix", lambda _purpose: [])

    with pytest.raises(LabError) as refused:
        engine._start_daemon()

    assert "dockerd exited 1" in refused.value.message
    assert "failed to start daemon: no space left on device" in refused.value.message
    assert "the disk is full" in refused.value.message


def test_an_engine_that_is_named_but_does_not_answer_is_not_replaced(monkeypatch):
    """DOCKER_HOST names somebody's engine: starting another one here would be no answer to that."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")

    with pytest.raises(LabError, match="DOCKER_HOST") as refused:
        engine.engine()
    assert refused.value.exit_code == 3


def test_without_root_and_sudo_it_says_who_can_do_it(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(LabError, match="starting the Docker engine needs root") as refused:
        root_prefix("starting the Docker engine")
    assert "do: run this as root" in refused.value.message


def test_without_apt_it_says_what_is_missing(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(LabError, match=r"docker\.io is missing .the lab hosts are containers."):
        system.install(["docker.io"], "the lab hosts are containers")


def test_a_failing_program_is_named_with_the_end_of_its_output():
    with pytest.raises(LabError) as refused:
        run(["sh", "-c", "echo one; echo two >&2; exit 7"], what="trying", hint="try again")

    assert refused.value.message.splitlines() == [
        "trying failed: sh -c echo one; echo two >&2; exit 7 exited 7",
        "  | two",
        "do: try again",
    ]


def test_a_program_that_is_not_there_is_no_traceback():
    with pytest.raises(LabError, match="cannot run no-such-program"):
        run(["no-such-program"], what="trying")


def test_a_full_disk_is_named():
    """The engine says it deep in a build's output."""
    message = failed("building", "exit 1", "write /var/lib/docker/x: no space left on device", "retry")

    assert "the disk is full" in message
    assert "retry" not in message
