"""Ways to run gpucheck: in this process, on a terminal, and so that all its processes can be found."""

import io
import os
import pty
import subprocess
import sys
from contextlib import suppress

import pytest

from gpucheck.cli import main
from gpucheck.processes.environment import python_module
from tests.shared import END_S

GPUCHECK = [sys.executable, "-m", "gpucheck"]


def run(capsys, *arguments):
    """Run a command in this process: exit status, stdout, stderr."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    return stop.value.code or 0, *capsys.readouterr()


def as_stdin(content):
    """Return what takes the place of sys.stdin."""
    return io.TextIOWrapper(io.BytesIO(content if isinstance(content, bytes) else content.encode()))


def read_all(descriptor):
    """Read a terminal until its other end is closed."""
    text = b""
    with suppress(OSError):  # the other end of a terminal is closed
        while data := os.read(descriptor, 65536):
            text += data
    os.close(descriptor)
    return text.decode()


def on_a_terminal(*words, stream="stdout", **environment):
    """Run a command with one stream on a terminal: exit status, and what the terminal gets."""
    main, other = pty.openpty()
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: other}
    surroundings = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    command = subprocess.Popen(
        [*GPUCHECK, *words], stdin=subprocess.DEVNULL, env={**surroundings, "TERM": "xterm", **environment}, **streams
    )
    os.close(other)
    text = read_all(main)
    return command.wait(timeout=END_S), text


def write_site(folder):
    """Honest files for the options of ``stack``: stack.yml, facts.json, lock.yml; and an empty folder of reports."""
    (folder / "stack.yml").write_text("schema: gpucheck.spec/1\n")
    (folder / "facts.json").write_text(
        '{"schema": "gpucheck.facts/1", "host": "a", "os": {"id": "ubuntu", "version": "22.04"}, "arch": "x86_64",'
        ' "kernel": "5.15.0-1-generic", "gpus": [{"bus_id": "0000:01:00.0", "device_id": "15f8"}]}'
    )
    (folder / "reports").mkdir()
    words = ["stack", "lock", "--spec", "stack.yml", "--facts", "facts.json", "-o", "lock.yml"]
    subprocess.run([*python_module("gpucheck"), *words], cwd=folder, check=True, capture_output=True)
