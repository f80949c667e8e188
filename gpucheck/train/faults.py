"""Injected faults: make a rank hang, die, raise or leave an invalid report at a known place.

For tests of the smoke test, and for simulated machines. What happens to the communication is in ``torch_averaging``.
"""

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gpucheck.train.spec import Fault

NOISE_BYTES = 4_000_000


def hook(fault: Fault | None, result: Path) -> Callable[[str, int | None], None] | None:
    """The ``on_enter`` of the progress of a rank that is to have this fault, if any."""
    if fault is None:
        return None

    def trip(phase: str, step: int | None) -> None:
        if phase == fault.phase and (fault.step is None or step == fault.step):
            _act(fault, result)

    return trip


def _act(fault: Fault, result: Path) -> None:
    if fault.kind == "hang":
        time.sleep(3600)
    elif fault.kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault.kind == "raise":
        raise ArithmeticError("injected failure")
    elif fault.kind == "garbage":
        result.write_bytes(os.urandom(512))
        os._exit(0)
    elif fault.kind == "out-of-memory":
        # As a cgroup or ulimit does to a rank that needs more than it may have.
        resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))
        bytearray(1 << 30)
    elif fault.kind == "noise":
        sys.stdout.buffer.write(b"\xff\x00noise\n" * (NOISE_BYTES // 8))
        sys.stdout.flush()
