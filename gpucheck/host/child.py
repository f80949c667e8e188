"""Ask NVML through a child process with a deadline: whatever the child does, the answer is a value and in time."""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import msgspec

from gpucheck.model import NvmlFailure, NvmlReading

CHILD = (sys.executable, "-m", "gpucheck.host.nvml_child")
DIED, LATE = -1, -2  # gpucheck.model.NvmlFailure.code
# A killed child that sits in the driver (state D) cannot go before the driver lets it: it is left behind.
GRACE_S = 0.2
TAIL_BYTES = 2000


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


def ask_child(deadline_s: float, command: Sequence[str] = CHILD, *, health: bool = True) -> NvmlReading | NvmlFailure:
    """Run the child and return its answer, or why there is none; never later than the deadline plus a moment.

    health: as in gpucheck.host.nvml.read.
    """
    receive, send = os.pipe()
    try:
        child = subprocess.Popen(
            [*command, str(send), "health" if health else "identity"],
            pass_fds=(send,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        os.close(receive)
        return NvmlFailure(call="start of the NVML child", code=DIED, name="ChildNotStarted", detail=str(error))
    finally:
        os.close(send)
    seen = _Transcript()
    in_time = False
    try:
        in_time = _listen(child, receive, seen, time.monotonic() + deadline_s)
    finally:
        os.close(receive)
        status = _end(child, patient=in_time)
    if seen.answer is not None:
        return _decode(seen)
    return _died(seen, status) if in_time else _late(seen, deadline_s)


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
