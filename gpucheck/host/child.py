"""Ask NVML through a child process with a deadline: whatever the child does, the answer is a value and in time."""

import atexit
import fcntl
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from gpucheck.model import CRASHED, DEFECT, LATE, NOT_STARTED, NvmlFailure, NvmlReading
from gpucheck.processes.signals import NO_MEMORY

# Without a process that keeps it, the driver initialises each GPU anew, one after the other, for 1 to 3 s each
# (NVIDIA's Driver Persistence page).
SECONDS_PER_GPU = 5.0
INITIALISING = ("start of the NVML child", "dlopen", "nvmlInit", "nvmlDeviceGetHandleByIndex")
# By these a process is ended from outside or by its own limits: by a person, the out-of-memory killer, a supervisor.
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGXCPU, signal.SIGXFSZ)
# A killed child that sits in the driver (state D) cannot go before the driver lets it: it is left behind.
GRACE_S = 0.2
TAIL_BYTES = 2000
PIPE_BYTES = 1 << 20  # what Linux grants everybody by default: /proc/sys/fs/pipe-max-size
START = (
    "import os, sys; sys.path[:] = sys.argv[1].split(os.pathsep); "
    "from gpucheck.host.nvml_child import main; main(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))"
)


class _Transcript:
    """What came from the child so far."""

    def __init__(self) -> None:
        self.buffer = b""
        self.errors = b""
        self.call = "start of the NVML child"
        self.subject = ""
        self.entered = time.monotonic()
        self.answer: bytes | None = None

    def take(self, data: bytes) -> None:
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            mark, _, rest = line.partition(b" ")
            if mark == b">":
                self.call, _, self.subject = rest.decode(errors="replace").partition(" ")
                self.entered = time.monotonic()
            elif mark == b"=":
                self.answer = rest


def ask_child(
    deadline_s: float, command: Sequence[str] | None = None, *, health: bool = True
) -> NvmlReading | NvmlFailure:
    """Run the child and return its answer, or why there is none; never later than the deadline plus a moment.

    health: as in gpucheck.host.nvml.read.
    """
    return NvmlChild(deadline_s, command, health=health).answer()


def ask_twice(first: "NvmlChild", start: Callable[[], "NvmlChild"]) -> NvmlReading | NvmlFailure:
    """Return the first child's answer, or, where it came too late, that of a second one.

    A busy host or a driver that initialises its GPUs can be late once; one late answer proves nothing.
    """
    answer = first.answer()
    if not isinstance(answer, NvmlFailure) or answer.code != LATE:
        return answer
    again = start().answer()
    if isinstance(again, NvmlFailure) and again.code == LATE:
        return msgspec.structs.replace(again, detail=f"{again.detail}; a first try stopped in {answer.call}")
    return again


def child_command() -> list[str]:
    """The interpreter without ``site``, which costs more than asking NVML does; it gets our own module path instead."""
    package_root = str(Path(__file__).parents[2])
    path = os.pathsep.join(dict.fromkeys([package_root, *(part for part in sys.path if part)]))
    return [sys.executable, "-S", "-c", START, path]


class NvmlChild:
    """A child that asks NVML while we do something else.

    deadline_s: how long one call may take; initialisation, and all calls together, may take longer (``more_time``).
    """

    def __init__(self, deadline_s: float, command: Sequence[str] | None = None, *, health: bool = True) -> None:
        self.started = time.monotonic()
        self.deadline_s = deadline_s
        self.total_s = deadline_s
        self.failure: NvmlFailure | None = None
        self.receive, send = os.pipe()
        _widen(send)
        try:
            self.child = subprocess.Popen(
                [
                    *(child_command() if command is None else command),
                    *(str(send), "health" if health else "identity", str(os.getpid())),
                ],
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
                call="start of the NVML child", code=NOT_STARTED, name="ChildNotStarted", detail=str(error)
            )
        finally:
            os.close(send)

    def more_time(self, gpus: int) -> None:
        """Allow what the driver may take to initialise so many GPUs."""
        self.total_s = self.deadline_s + SECONDS_PER_GPU * gpus

    def answer(self) -> NvmlReading | NvmlFailure:
        """Return the answer, or why there is none. To be called once."""
        if self.failure is not None:
            return self.failure
        seen = _Transcript()
        in_time = False
        try:
            # What is there already is heard, however late we come for it.
            deadline = max(self.started + self.total_s, time.monotonic() + GRACE_S)
            in_time = _listen(self.child, self.receive, seen, deadline, self.deadline_s)
        finally:
            os.close(self.receive)
            status = _end(self.child, patient=in_time)
            atexit.unregister(self.child.kill)
        if seen.answer is not None:
            return _decode(seen)
        return _died(seen, status) if in_time else _late(seen, time.monotonic() - seen.entered)


def _widen(pipe: int) -> None:
    """Room for every call of a large machine, so that the child need not wait until we have time to listen."""
    with suppress(OSError):  # the kernel's limit for unprivileged users was lowered: then it waits
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _listen(child: subprocess.Popen[bytes], receive: int, seen: _Transcript, deadline: float, call_s: float) -> bool:
    """Read until the answer is there or both pipes are closed. False at the deadline, of the whole or of one call."""
    assert child.stderr is not None  # noqa: S101 - we asked for the pipe
    errors = child.stderr.fileno()
    with selectors.DefaultSelector() as selector:
        for descriptor in (receive, errors):
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map() and seen.answer is None:
            until = deadline if seen.call in INITIALISING else min(deadline, seen.entered + call_s)
            remaining = until - time.monotonic()
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
    """Return the child's exit status, or None where it had to be killed."""
    assert child.stderr is not None  # noqa: S101 - we asked for the pipe
    child.stderr.close()
    if patient:
        try:
            return child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            pass  # it closed its pipes and lives on: as good as stuck
    child.kill()
    with suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_S)
    return None


def _decode(seen: _Transcript) -> NvmlReading | NvmlFailure:
    try:
        answer: NvmlReading | NvmlFailure = msgspec.json.decode(seen.answer or b"", type=NvmlReading | NvmlFailure)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return NvmlFailure(call=seen.call, code=DEFECT, name="ChildAnswerUnreadable", detail=str(error))
    return answer


def _died(seen: _Transcript, status: int | None) -> NvmlFailure:
    """Only a signal that a process raises by itself speaks of the library; any other end is gpucheck's."""
    detail = f"during {seen.call}{f' of {seen.subject}' if seen.subject else ''}"
    lines = seen.errors.decode(errors="replace").strip().splitlines()
    last = f"; last line on stderr: {lines[-1]}" if lines else ""
    if status is None or status >= 0:
        how = "closed its pipes and did not exit" if status is None else f"exited with status {status}"
        starved = any(words in last for words in NO_MEMORY)
        code, name = (NOT_STARTED, "ChildOutOfMemory") if starved else (DEFECT, "ChildFailed")
        return NvmlFailure(call=seen.call, code=code, name=name, detail=f"the process {how} {detail}{last}")
    killed = signal.Signals(-status)
    code, name = (NOT_STARTED, "ChildKilled") if killed in FROM_OUTSIDE else (CRASHED, "ChildCrashed")
    return NvmlFailure(
        call=seen.call, code=code, name=name, detail=f"the process was killed by {killed.name} {detail}{last}"
    )


def _late(seen: _Transcript, seconds: float) -> NvmlFailure:
    detail = f"no answer within {seconds:.0f} s{f' about {seen.subject}' if seen.subject else ''}"
    return NvmlFailure(call=seen.call, code=LATE, name="ChildTimedOut", detail=detail)
