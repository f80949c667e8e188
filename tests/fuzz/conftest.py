"""What the seeds of the fuzzer are made with: the simulator's libraries, compiled once in a test run."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache_of_the_run(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
