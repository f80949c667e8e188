"""What the processes of one test run share: the first that needs it makes it, the others wait. Tables and samples."""

import fcntl
import os
import shutil
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

# The most for what a test waits for: it ends a hang, and no busy machine comes near it.
END_S = 900.0
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C: test tables are read by every process of a run


def from_yaml(path: Path) -> Any:
    """Return what a YAML file of test data contains."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)  # noqa: S506 - both are safe loaders


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


def sampled(values: Iterable[Any], kept: Container[int] | Callable[[int, Any], bool]) -> list[Any]:
    """Return every value as a parameter of a test. A tuple is several arguments.

    ``make test`` runs those that ``kept`` names, by position, or returns true for; the others are marked ``more``.
    """
    found = []
    for number, value in enumerate(values):
        is_kept = kept(number, value) if callable(kept) else number in kept
        marks = () if is_kept else (pytest.mark.more,)
        found.append(pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=marks))
    return found
