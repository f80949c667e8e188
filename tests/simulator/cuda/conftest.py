"""Programs that use cuda.bindings on a simulated machine, each in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shared import END_S

HELPERS = Path(__file__).with_name("helpers.py")
Run = Callable[..., str]


@pytest.fixture
def run(activate, tmp_path) -> Run:
    """``run(profile, code, *faults, NAME=value)``: what the program prints; it may use everything in helpers.py.

    The environment's variables are keywords. spread: of the times; False: each copy takes what it should. A program
    that fails fails the test, with its last lines.
    """

    def on_machine(
        profile: str, code: str, *faults: str, status: int = 0, spread: bool = False, **environment: str
    ) -> str:
        exact = () if spread or any(fault.startswith("copy-noise") for fault in faults) else ("copy-noise:percent=0",)
        machine = activate(profile, (*faults, *exact))
        program = tmp_path / "program.py"
        program.write_text(HELPERS.read_text(encoding="utf-8") + "\n" + code, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(program)],
            env={**os.environ, "LD_LIBRARY_PATH": str(machine / "lib"), **environment},
            capture_output=True,
            text=True,
            timeout=END_S,
            check=False,
        )
        assert done.returncode == status, done.stderr[-2000:]
        return done.stdout.strip()

    return on_machine
