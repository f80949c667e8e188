"""The other side of a supervised process: it ends with its parent, shows its stack on demand."""

import ctypes
import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, BinaryIO, Protocol, TypeVar

import msgspec

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


class HasParent(Protocol):
    """A first request names the process that sent it."""

    @property
    def parent_pid(self) -> int: ...


Setup = TypeVar("Setup", bound=HasParent)
Step = TypeVar("Step")


def end_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends, however that ends.

    parent_pid: the process that started this one; if it ended before the kernel was asked, this process ends here.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit(f"the parent {parent_pid} ended before this process began")


def setup_of(requests: BinaryIO, shape: type[Setup]) -> Setup:
    """Return the first request, whose parent_pid is the process with which this one ends."""
    setup = msgspec.json.decode(requests.readline(), type=shape)
    end_with_parent(setup.parent_pid)
    return setup


def serve(descriptor: int, requests: BinaryIO, shape: type[Step], answer: Callable[[Step], object]) -> None:
    """Answer every further request until the parent closes stdin."""
    for line in requests:
        reply(descriptor, answer(msgspec.json.decode(line, type=shape)))


def reply(descriptor: int, value: object) -> None:
    """Send a value to the parent as one line of JSON."""
    data = msgspec.json.encode(value) + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


def first_line(error: Exception) -> str:
    """Return type and first line: the rest of a CUDA error is advice for developers."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def located(error: Exception) -> str:
    """Return the same with the location, for reports of defects."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return first_line(error) + at


def show_stacks(file: IO[str]) -> None:
    """Write the Python stacks of all threads there on SIGUSR1, and on a crash. The file must stay open."""
    faulthandler.enable(file)
    faulthandler.register(signal.SIGUSR1, file)


def stack_of(text: str, program: str) -> tuple[str, ...]:
    """From what was written so: the frames of the thread that runs the program, innermost first; empty without one.

    program: the end of its file name, ``train/rank.py``.
    """
    for block in text.split("\n\n"):
        frames = [line.strip() for line in block.splitlines() if line.startswith("  File ")]
        if any(program in frame for frame in frames):
            return tuple(frame.removeprefix("File ") for frame in frames)
    return ()
