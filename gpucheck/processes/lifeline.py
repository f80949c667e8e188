"""The other side of a supervised process: it ends with its parent, shows its stack on demand."""

import ctypes
import faulthandler
import os
import signal
import sys
from typing import IO

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def end_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends, however that ends.

    parent_pid: the process that started this one; if it ended before the kernel was asked, this process ends here.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit(f"the parent {parent_pid} ended before this process began")


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
