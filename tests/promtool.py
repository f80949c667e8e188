"""Prometheus' own promtool, where ``make tools`` or the system has installed it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared import END_S

PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=str(Path(sys.executable).parent))
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="needs promtool: make tools")


def promtool(*words: str, folder: Path | None = None, text: str | None = None) -> tuple[int, str]:
    """Run promtool; return its exit status and all that it printed. folder: where it runs. text: its input."""
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *words], cwd=folder, input=text, capture_output=True, text=True, check=False, timeout=END_S
    )
    return done.returncode, done.stdout + done.stderr
