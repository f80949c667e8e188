"""The product inside a fuzzing process: files in memory, the command line in-process, and no host but recorded ones."""

import atexit
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple, NoReturn
from unittest.mock import patch

import click

# Below folders of its own: an input that says ../ stays inside.
BELOW = "a/b/c/d/e/f/g/h"


class Ended(NamedTuple):
    """How a command ended. error: what it raised."""

    status: int
    out: str
    err: str
    error: BaseException | None

    def verify(self, statuses: tuple[int, ...]) -> None:
        """Raise its error or Wrong unless it ended with one of these statuses and printed clean text."""
        from tests.fuzz.oracles import Wrong, terminal

        if self.status not in statuses:
            raise self.error or Wrong(f"exit status {self.status}", self.err[:200])
        terminal(self.out, "stdout")
        terminal(self.err, "stderr")


@cache
def scratch() -> Path:
    """This process's own folder, in memory where there is such a place."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="gpucheck-fuzz-", dir=base))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / BELOW).mkdir(parents=True)
    return folder / BELOW


def file(data: bytes, name: str) -> Path:
    """A file of this content; the next one takes its place."""
    path = scratch() / name
    path.write_bytes(data)
    return path


@contextmanager
def prepared() -> Iterator[None]:
    """What fuzzing must never do is out of reach, and files are in a folder of this process, which ends with it."""
    from gpucheck import host, simulator

    before, home = Path.cwd(), {"HOME": str(scratch()), "XDG_CACHE_HOME": str(scratch())}
    with (
        patch.dict(os.environ, home),
        patch.object(host, "live_source", _no_host),
        patch.object(simulator, "activate", _no_host),
    ):
        os.chdir(scratch())
        try:
            yield
        finally:
            os.chdir(before)


def _no_host(*arguments: object, **more: object) -> NoReturn:
    from gpucheck.cli._shared.output import Problem

    raise Problem("The fuzzer has no host.", 3)


def command(arguments: list[str], stdin: bytes = b"") -> Ended:
    """Run gpucheck with these arguments in this process, through its main(): what a person's terminal would get."""
    from gpucheck.cli import main

    return _ended(lambda: main(arguments), stdin)


def shown(error: BaseException) -> str:
    """The text on a person's terminal where a reader's error ends a command."""
    from gpucheck.cli._shared.failure import failure
    from gpucheck.cli._shared.output import Problem
    from gpucheck.processes.streams import standard_streams

    def print_it() -> None:
        with standard_streams():
            failure(Problem(str(error.args[0] if error.args else error)))
            sys.stderr.flush()

    return _ended(print_it).err


def _ended(work: Callable[[], None], stdin: bytes = b"") -> Ended:
    """With files in memory as the process's own stdout and stderr: gpucheck wraps those, and no others."""
    from gpucheck.cli._shared import failure as module

    raised: list[BaseException] = []
    real = module.failure

    def failure(error: BaseException) -> int:
        raised.append(error)
        return real(error)

    files = _memory()
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO(stdin), "utf-8"), sys.__stdout__, sys.__stderr__
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    kept = [os.dup(number) for number in (1, 2)]
    status: object = 0
    try:
        for file, number in zip(files, (1, 2), strict=True):
            os.ftruncate(file, 0)
            os.lseek(file, 0, os.SEEK_SET)
            os.dup2(file, number)
        # As to a terminal: click takes escapes out of what goes to a file, the foreign ones too.
        with patch.object(module, "failure", failure), patch.object(click.utils, "should_strip_ansi", _keep):
            work()
    except SystemExit as end:
        status = end.code
    finally:
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)
        sys.stdin, sys.stdout, sys.stderr = before
    out, err = (os.pread(file, os.fstat(file).st_size, 0).decode(errors="surrogateescape") for file in files)
    return Ended(status if isinstance(status, int) else 0, out, err, raised[0] if raised else None)


def _keep(*arguments: object, **more: object) -> bool:
    return False


@cache
def _memory() -> tuple[int, int]:
    return os.memfd_create("stdout"), os.memfd_create("stderr")
