"""A real Docker engine takes over, without a restart, what the stand-in for nvidia-ctk wrote."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpucheck.lab import system as machine_engine
from tests.lab.e2e import ROOT, until
from tests.shared import END_S

pytestmark = [pytest.mark.lab, pytest.mark.skipif(os.geteuid() != 0, reason="a second engine needs root")]


class Engine:
    """A second engine beside the machine's own, with nothing in common with it."""

    def __init__(self, folder: Path) -> None:
        self.configuration = folder / "daemon.json"
        self.socket = f"unix://{folder}/socket"
        self.configuration.write_text('{"log-level": "warn"}')
        options = ("data-root", "root"), ("exec-root", "exec"), ("pidfile", "pid"), ("config-file", "daemon.json")
        words = [f"--{name}={folder / value}" for name, value in options]
        words += [f"--host={self.socket}", "--iptables=false", "--ip-masq=false"]
        # In a network of its own: engines share the name of their bridge, and one without takes the other's away.
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(["unshare", "--net", "dockerd", *words], stdout=log, stderr=log)

    def runtimes(self) -> set[str]:
        """The names that the running engine knows, empty where it does not answer."""
        words = ["docker", "--host", self.socket, "info", "--format", "{{json .Runtimes}}"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return set(json.loads(done.stdout or "{}") or {}) if done.returncode == 0 else set()


@pytest.fixture
def engine(tmp_path) -> Iterator[Engine]:
    machine_engine.engine()
    running = Engine(tmp_path)
    try:
        until(lambda: bool(running.runtimes()), "the second engine to answer")
        yield running
    finally:
        running.process.terminate()
        running.process.wait(timeout=END_S)


def test_a_running_docker_knows_the_runtime_after_a_reload(engine):
    assert "nvidia" not in engine.runtimes()
    tool = [sys.executable, str(ROOT / "images/lab/payload/nvidia-ctk"), "runtime", "configure", "--runtime", "docker"]
    subprocess.run([*tool, "--config", str(engine.configuration)], check=True, capture_output=True)

    # What systemctl reload docker does.
    os.kill(engine.process.pid, signal.SIGHUP)

    until(lambda: "nvidia" in engine.runtimes(), "the second engine to know the runtime")
    assert json.loads(engine.configuration.read_text())["log-level"] == "warn"
    assert engine.process.poll() is None
