"""What can be fuzzed: one decorated function in a module of ``targets/`` is one target; there is no list to keep."""

import atexit
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import FrameType
from typing import Literal, NamedTuple

from tests.fuzz import targets

Format = Literal["text", "yaml", "json", "json.gz", "values", "bytes"]
Function = Callable[[bytes], None]
Seeds = Callable[[], Sequence[bytes]]
CPU_S = 20.0
"""Processor time of one input; the slowest takes a second."""
ADDRESS_SPACE = 2 << 30
"""On top of what the process has mapped already."""


class Target(NamedTuple):
    """One reader and what follows it.

    run: returns for every input, or raises what is a defect. seeds: real inputs. format: how they are changed.
    attacks: run as they are.
    """

    name: str
    run: Function
    seeds: Seeds
    format: Format
    attacks: Seeds = tuple


_found: dict[str, Target] = {}


@cache
def scratch() -> Path:
    """This process's own folder, in memory where there is such a place. Below others, so that ../ stays inside."""
    folder = Path(tempfile.mkdtemp(prefix="gpucheck-fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "a/b/c/d/e/f").mkdir(parents=True)
    return folder / "a/b/c/d/e/f"


def file(data: bytes, name: str) -> Path:
    """A file of this content; the next one takes its place."""
    path = scratch() / name
    path.write_bytes(data)
    return path


def target(
    *,
    seeds: Seeds,
    format: Format,  # noqa: A002 - the field's name
    name: str = "",
    attacks: Seeds = tuple,
) -> Callable[[Function], Function]:
    """Make a target of a function, under the function's name unless another is given."""

    def decorate(run: Function) -> Function:
        called = name or run.__name__.replace("_", "-")
        if called in _found:
            raise ValueError(f"two targets are called {called}")
        _found[called] = Target(called, run, cache(seeds), format, cache(attacks))
        return run

    return decorate


def all_targets() -> tuple[Target, ...]:
    """Every target, by name."""
    for module in iter_modules(targets.__path__):
        import_module(f"{targets.__name__}.{module.name}")
    return tuple(_found[name] for name in sorted(_found))


def run(one: Target, data: bytes) -> None:
    """Run one input. Raises what a defect raises, AssertionError where it would end the process or takes too long."""
    before = signal.signal(signal.SIGPROF, _interrupt)
    signal.setitimer(signal.ITIMER_PROF, CPU_S, 1.0)
    try:
        one.run(data)
    except (KeyboardInterrupt, Exception):
        raise
    except BaseException as error:
        raise AssertionError(f"{one.name}: {type(error).__name__} for {len(data)} bytes: {error}") from error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class TooSlow(BaseException):
    """Raised in the middle of the work; no ``except Exception`` there may take it for its own."""


def _interrupt(signal_: int, frame: FrameType | None) -> None:
    raise TooSlow


@contextmanager
def bounded_memory() -> Iterator[None]:
    """An input that asks for gigabytes gets a MemoryError instead of the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + ADDRESS_SPACE, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
