"""What the processes of one test run share: the first that needs it makes it, the others wait. Samples of a table."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest


def run_folder(factory: pytest.TempPathFactory) -> Path:
    """Return the temporary folder of the whole test run."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder of this name, with what ``make`` put into it. One that fails is made again by the next."""
    folder = run_folder(factory) / name
    done = folder.with_suffix(".done")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


def sampled(values: Iterable[Any], kept: Callable[[int, Any], bool]) -> list[Any]:
    """Return every value as a parameter of a test. A tuple is several arguments.

    ``make test`` runs those that ``kept`` returns true for, by number and value; the others are marked ``more``.
    """
    found = []
    for number, value in enumerate(values):
        marks = () if kept(number, value) else (pytest.mark.more,)
        found.append(pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=marks))
    return found
