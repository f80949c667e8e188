"""Run gpucheck in a process that is forked from one that has imported it: a run costs its work, and no start.

A run has a process of its own, with its arguments, environment, folder, streams and exit status. What tests a start
itself (missing packages, signals, terminals, limits) starts a process.
"""

import atexit
import gc
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess
from typing import Any

from gpucheck.processes.signals import spare

ROOT = Path(__file__).parent.parent
STREAMS = ("stdin", "stdout", "stderr")


def gpucheck(
    *arguments: str | Path,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    given: bytes = b"",
    timeout_s: float = 120.0,
) -> "CompletedProcess[str]":
    """Run gpucheck with these arguments, as subprocess.run does. given: its standard input.

    Raises subprocess.TimeoutExpired for a run that takes longer; it is ended.
    """
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    words = [str(word) for word in arguments]
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder, name) for name in STREAMS}
        files["stdin"].write_bytes(given)
        request = {"words": words, "cwd": str(cwd), "env": dict(os.environ if env is None else env), "folder": folder}
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        if not select.select([server.stdout], [], [], timeout_s)[0]:
            _server.cache_clear()
            _end(server)
            raise subprocess.TimeoutExpired(["gpucheck", *words], timeout_s)
        status = int(server.stdout.readline())
        out, err = (files[name].read_bytes().decode() for name in STREAMS[1:])
    return CompletedProcess(["gpucheck", *words], status, out, err)


@cache
def _server() -> "subprocess.Popen[str]":
    """The process that runs are forked from: one for each test process, which it does not outlive."""
    command = [sys.executable, "-m", "tests.forked"]
    server = subprocess.Popen(
        command, cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True, start_new_session=True
    )
    spare(server.pid)  # a test that a signal ends in this process ends its other children
    atexit.register(_end, server)
    return server


def _end(server: "subprocess.Popen[str]") -> None:
    """End it and its run."""
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _serve() -> None:
    """Answer each request with the exit status of its run. Returns in the process of a run, and there alone."""
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            return _become(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
    sys.exit()


def _become(request: dict[str, Any]) -> None:
    """Make this process the one that the request describes."""
    folder = request["folder"]
    for number, name in enumerate(STREAMS):
        file = os.open(Path(folder, name), os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["gpucheck", *request["words"]]
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - the run closes it


def _import_everything() -> None:
    """What commands import when they are called."""
    import click

    from gpucheck.cli import cli
    from gpucheck.run.verification import all_steps

    for name in cli.list_commands(click.Context(cli)):
        import_module(f"gpucheck.cli.{name}")
    all_steps()
    gc.freeze()  # no run collects, and so copies, what it has in common with all others


if __name__ == "__main__":
    _import_everything()
    _serve()
    from gpucheck.cli import main

    main()
