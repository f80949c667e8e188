"""The product inside a fuzzing process: files in memory, the command line in-process, and no host but recorded ones."""

import io
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple, NoReturn
from unittest.mock import patch

# Below folders of its own: an input that says ../ stays inside.
BELOW = "a/b/c/d/e/f/g/h"


class Ended(NamedTuple):
    """How a command ended. error: what it raised."""

    status: int
    out: str
    err: str
    error: BaseException | None


@cache
def _scratch(pid: int) -> Path:
    memory = Path("/dev/shm")
    base = memory if os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix()}{pid}-", dir=base))
    (folder / BELOW).mkdir(parents=True)
    return folder


def prefix() -> str:
    """Of the folders of this run: the runner removes those of workers that died."""
    return f"gpucheck-fuzz-{os.environ.get('GPUCHECK_FUZZ_RUN', os.getpid())}-"


def scratch() -> Path:
    """This process's own folder, in memory where there is such a place."""
    return _scratch(os.getpid()) / BELOW


def remove_scratch() -> None:
    """Everything that workers of this run left."""
    for base in {Path("/dev/shm"), Path(tempfile.gettempdir())}:
        for folder in base.glob(f"{prefix()}*"):
            shutil.rmtree(folder, ignore_errors=True)


def file(data: bytes, name: str) -> Path:
    """A file of this content; the next one takes its place."""
    path = scratch() / name
    path.write_bytes(data)
    return path


def prepare() -> None:
    """Once a process: what fuzzing must never do is out of reach, and files are beside nothing that matters."""
    from gpucheck import host, simulator

    os.chdir(scratch())
    os.environ.update(HOME=str(scratch()), XDG_CACHE_HOME=str(scratch()))
    for module, name in ((host, "live_host"), (simulator, "activate")):
        patch.object(module, name, _no_host).start()


def _no_host(*arguments: object, **more: object) -> NoReturn:
    from gpucheck.cli._output import Problem

    raise Problem("The fuzzer has no host.", 3)


def command(arguments: list[str], stdin: bytes = b"") -> Ended:
    """Run gpucheck with these arguments in this process, as its main() does."""
    from gpucheck import cli
    from gpucheck.cli._failure import failure

    out, err = _stream(), _stream("backslashreplace")
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO(stdin), "utf-8"), out, err
    error: BaseException | None = None
    try:
        status = cli._run(arguments)
    except Exception as raised:
        error, status = raised, failure(raised)
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
    return Ended(int(status or 0), _text(out), _text(err), error)


def _stream(errors: str = "strict") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), "utf-8", errors=errors)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    raw = stream.buffer
    assert isinstance(raw, io.BytesIO)
    return raw.getvalue().decode(errors="surrogateescape")
