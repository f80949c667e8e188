"""Ask NVML through a child process with a deadline: whatever the child does, the answer is a value and in time."""

import atexit
import fcntl
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from gpucheck.model import NvmlFailure, NvmlReading

DIED, LATE = -1, -2  # gpucheck.model.NvmlFailure.code
# A killed child that sits in the driver (state D) cannot go before the driver lets it: it is left behind.
GRACE_S = 0.2
TAIL_BYTES = 2000
PIPE_BYTES = 1 << 20  # what Linux grants everybody by default: /proc/sys/fs/pipe-max-size
START = (
    "import os, sys; sys.path[:] = sys.argv[1].split(os.pathsep); "
    "from gpucheck.host.nvml_child import main; main(int(sys.argv[2]), sys.argv[3])"
)


class _Transcript:
    """What came from the child so far."""

    def __init__(self) -> None:
        self.buffer = b""
        self.errors = b""
        self.call = "start of the NVML child"
        self.subject = ""
        self.answer: bytes | None = None

    def take(self, data: bytes) -> None:
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            mark, _, rest = line.partition(b" ")
            if mark == b">":
                self.call, _, self.subject = rest.decode(errors="replace").partition(" ")
            elif mark == b"=":
                self.answer = rest


def ask_child(
    deadline_s: float, command: Sequence[str] | None = None, *, health: bool = True
) -> NvmlReading | NvmlFailure:
    """Run the child and return its answer, or why there is none; never later than the deadline plus a moment.

    health: as in gpucheck.host.nvml.read.
    """
    return NvmlChild(deadline_s, command, health=health).answer()


def child_command() -> list[str]:
    """The interpreter without ``site``, which costs more than asking NVML does; it gets our own module path instead."""
    package_root = str(Path(__file__).parents[2])
    path = os.pathsep.join(dict.fromkeys([package_root, *(part for part in sys.path if part)]))
    return [sys.executable, "-S", "-c", START, path]


class NvmlChild:
    """A child that asks NVML while we do something else. The deadline runs from its start."""

    def __init__(self, deadline_s: float, command: Sequence[str] | None = None, *, health: bool = True) -> None:
        self.deadline_s = deadline_s
        self.deadline = time.monotonic() + deadline_s
        self.failure: NvmlFailure | None = None
        self.receive, send = os.pipe()
        _widen(send)
        try:
            self.child = subprocess.Popen(
                [*(child_command() if command is None else command), str(send), "health" if health else "identity"],
                pass_fds=(send,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            atexit.register(self.child.kill)  # where nobody came to ask for the answer
        except OSError as error:
            os.close(self.receive)
            self.failure = NvmlFailure(
                call="start of the NVML child", code=DIED, name="ChildNotStarted", detail=str(error)
            )
        finally:
            os.close(send)

    def answer(self) -> NvmlReading | NvmlFailure:
        """The answer, or why there is none. To be asked once."""
        if self.failure is not None:
            return self.failure
        seen = _Transcript()
        in_time = False
        try:
            # What is there already is heard, however late we come for it.
            in_time = _listen(self.child, self.receive, seen, max(self.deadline, time.monotonic() + GRACE_S))
        finally:
            os.close(self.receive)
            status = _end(self.child, patient=in_time)
            atexit.unregister(self.child.kill)
        if seen.answer is not None:
            return _decode(seen)
        return _died(seen, status) if in_time else _late(seen, self.deadline_s)


def _widen(pipe: int) -> None:
    """Room for every call of a large machine, so that the child need not wait until we have time to listen."""
    with suppress(OSError):  # the kernel's limit for unprivileged users was lowered: then it waits
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _listen(child: subprocess.Popen[bytes], receive: int, seen: _Transcript, deadline: float) -> bool:
    """Read until the answer is there or both pipes are closed. False at the deadline."""
    assert child.stderr is not None  # noqa: S101 - we asked for the pipe
    errors = child.stderr.fileno()
    with selectors.DefaultSelector() as selector:
        for descriptor in (receive, errors):
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map() and seen.answer is None:
            remaining = deadline - time.monotonic()
            ready = selector.select(remaining) if remaining > 0 else []
            if not ready:
                return False
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fd)
                elif key.fd == receive:
                    seen.take(data)
                else:
                    seen.errors = (seen.errors + data)[-TAIL_BYTES:]
    return True


def _end(child: subprocess.Popen[bytes], *, patient: bool) -> int | None:
    """The child's exit status, or None where it was killed and did not go within a moment."""
    assert child.stderr is not None  # noqa: S101 - we asked for the pipe
    child.stderr.close()
    if patient:
        try:
            return child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            pass  # it closed its pipes and lives on: as good as stuck
    child.kill()
    try:
        return child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        return None


def _decode(seen: _Transcript) -> NvmlReading | NvmlFailure:
    try:
        answer: NvmlReading | NvmlFailure = msgspec.json.decode(seen.answer or b"", type=NvmlReading | NvmlFailure)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return NvmlFailure(call=seen.call, code=DIED, name="ChildAnswerUnreadable", detail=str(error))
    return answer


def _died(seen: _Transcript, status: int | None) -> NvmlFailure:
    how = f"exit status {status}"
    if status is not None and status < 0:
        how = f"killed by {signal.Signals(-status).name}"
    words = seen.errors.decode(errors="replace").strip().splitlines()
    detail = f"the process that asked NVML ended: {how}; it was asking about {seen.subject or 'nothing yet'}"
    return NvmlFailure(
        call=seen.call, code=DIED, name="ChildDied", detail=detail + (f"; it said: {words[-1]}" if words else "")
    )


def _late(seen: _Transcript, deadline_s: float) -> NvmlFailure:
    detail = f"no answer about {seen.subject or 'anything'} within {deadline_s:g} s; the process that asked was killed"
    return NvmlFailure(call=seen.call, code=LATE, name="ChildTimedOut", detail=detail)
