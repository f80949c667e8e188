"""What the seeds are made with, the simulator's libraries, and a process in which nothing is measured or started."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz import product
from tests.fuzz.target import bounded_memory


@pytest.fixture(autouse=True)
def cache_of_the_run(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    with product.prepared(), bounded_memory():
        yield
