"""Completion in real shells: the scripts of the packages, and keys typed into a terminal."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time

import pytest

from gpucheck.cli import cli
from release.man import completion

pytestmark = pytest.mark.slow
# Where the packages put the script: bash reads it, zsh finds it by name in its fpath, fish reads it.
START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "bind 'set enable-bracketed-paste off'; . {script}\n"),
    "zsh": (["zsh", "-f", "-i"], "fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D; bindkey -e\n"),
    "fish": (["fish", "--private", "--no-config", "-i"], "source {script}\n"),
}
FILES = {"bash": "gpucheck", "zsh": "_gpucheck", "fish": "gpucheck.fish"}
LINES = {
    "diag": "diagnose",
    "verify --basel": "verify --baseline",
    "verify --simulate hgx-h20": "verify --simulate hgx-h200-x8",
    "verify --simulate=hgx-h20": "verify --simulate=hgx-h200-x8",
    "verify --fault pcie-wi": "verify --fault pcie-width",
    "verify --fault pcie-width:wi": "verify --fault pcie-width:width=",
    "verify --fault pcie-width:gpu=1,wi": "verify --fault pcie-width:gpu=1,width=",
    "verify --only nvlink-e": "verify --only nvlink-errors",
    "verify --only acs,nvlink-e": "verify --only acs,nvlink-errors",
    "explain nvlink-do": "explain nvlink-down",
    "schema fle": "schema fleet",
}


@pytest.fixture(params=FILES)
def terminal(request, tmp_path):
    """Type lines into a shell; return what it prints for a mark at their end."""
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "gpucheck").write_text(f'#!/bin/sh\nexec {sys.executable} -m gpucheck "$@"\n')
    (tmp_path / "gpucheck").chmod(0o755)
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / FILES[shell]).write_text(completion(cli, shell))
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "TERM": "dumb"}
    words, start = START[shell]
    master, slave = pty.openpty()
    words = ["setsid", "--ctty", *words]  # fish ends where the terminal is not its own
    process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, env=environment, cwd=tmp_path)
    os.close(slave)

    def typed(text: str, mark: str) -> str:
        os.write(master, text.encode())
        seen, end = "", time.monotonic() + 120
        while mark not in seen and time.monotonic() < end:
            if select.select([master], [], [], 1)[0]:
                seen += os.read(master, 65536).decode(errors="replace")
        return seen

    typed(start.format(folder=folder, script=folder / FILES[shell]) + "echo rea''dy\n", "ready\r\n")
    yield typed
    process.kill()
    process.wait()
    os.close(master)


def test_a_shell_completes(terminal):
    """Tab; then to the start of the line (Ctrl-A), where echo makes the line print itself."""
    for line, expected in LINES.items():
        seen = terminal(f"gpucheck {line}\t\x01echo 'do''ne:' \x05\n", "done: gpucheck")
        seen += terminal("echo ne''xt\n", "next\r\n")

        assert f"done: gpucheck {expected}" in seen, seen
