"""Ask NVML through a child process with a deadline: whatever the child does, the answer is a value and in time."""

import atexit
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from gpucheck.model import CRASHED, DEFECT, LATE, NOT_STARTED, NvmlFailure, NvmlReading
from gpucheck.processes.child import GRACE_S, Child, Ending
from gpucheck.processes.exhausted import exhausted

# Without a process that keeps it, the driver initialises each GPU again, one after the other, for 1 to 3 s each
# (NVIDIA's Driver Persistence page).
SECONDS_PER_GPU = 5.0
INITIALISING = ("start of the NVML child", "dlopen", "nvmlInit", "nvmlDeviceGetHandleByIndex")
LATECOMER_S = 0.2  # for a response that is there already
# msgspec imports typing_extensions where it is installed; none of what it adds is used, and it takes 10 ms.
START = (
    "import os, sys; sys.path[:] = sys.argv[1].split(os.pathsep); sys.modules['typing_extensions'] = None; "
    "from gpucheck.host.nvml.child import main; main(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))"
)


class _Transcript:
    def __init__(self) -> None:
        self.call = "start of the NVML child"
        self.subject = ""
        self.entered = time.monotonic()
        self.answer: bytes | None = None

    def take(self, line: bytes) -> None:
        mark, _, rest = line.partition(b" ")
        if mark == b">":
            self.call, _, self.subject = rest.decode(errors="replace").partition(" ")
            self.entered = time.monotonic()
        elif mark == b"=":
            self.answer = rest


def query_child(
    deadline_s: float, command: Sequence[str] | None = None, *, health: bool = True
) -> NvmlReading | NvmlFailure:
    """Run the child and return its result, or the reason for none; never later than the deadline plus a moment.

    health: as in gpucheck.host.nvml.reading.read_nvml.
    """
    return NvmlChild(deadline_s, command, health=health).answer()


def query_twice(first: "NvmlChild", start: Callable[[], "NvmlChild"]) -> NvmlReading | NvmlFailure:
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
    package_root = str(Path(__file__).parents[3])
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
        command = child_command() if command is None else command
        depth = "health" if health else "identity"
        try:
            self.child = Child(command, os.environ, depth, str(os.getpid()))
            atexit.register(self.child.kill)  # if the answer was never requested
        except OSError as error:
            self.failure = NvmlFailure(
                call="start of the NVML child", code=NOT_STARTED, name="ChildNotStarted", detail=str(error)
            )

    def more_time(self, gpus: int) -> None:
        """Allow what the driver may take to initialise so many GPUs."""
        self.total_s = self.deadline_s + SECONDS_PER_GPU * gpus

    def answer(self) -> NvmlReading | NvmlFailure:
        """Return the result, or the reason for none. Call it once."""
        if self.failure is not None:
            return self.failure
        seen, late = _Transcript(), False
        try:
            # What is there already is heard, however late we come for it; from then on a child may write on for ever.
            deadline = max(self.started + self.total_s, time.monotonic() + LATECOMER_S)
            while seen.answer is None:
                if time.monotonic() >= deadline and not self.child.has_line:
                    if late:
                        return _late(seen, time.monotonic() - seen.entered)
                    late = True
                until = deadline if seen.call in INITIALISING else min(deadline, seen.entered + self.deadline_s)
                line = self.child.read_line(until)
                if line is None:
                    return _died(seen, self.child.how_it_ended())
                seen.take(line)
        except TimeoutError:
            return _late(seen, time.monotonic() - seen.entered)
        finally:
            self.child.end(patience_s=GRACE_S if seen.answer is not None else 0.0)
            atexit.unregister(self.child.kill)
        return _decode(seen)


def _decode(seen: _Transcript) -> NvmlReading | NvmlFailure:
    try:
        answer: NvmlReading | NvmlFailure = msgspec.json.decode(seen.answer or b"", type=NvmlReading | NvmlFailure)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return NvmlFailure(call=seen.call, code=DEFECT, name="ChildAnswerUnreadable", detail=str(error))
    return answer


def _died(seen: _Transcript, ending: Ending) -> NvmlFailure:
    """Only a signal that a process raises by itself speaks of the library; any other end is gpucheck's."""
    detail = f"during {seen.call}{f' of {seen.subject}' if seen.subject else ''}"
    last = f"; last line on stderr: {ending.last_line}" if ending.last_line else ""
    if ending.how in ("crashed", "killed"):
        code, name = (CRASHED, "ChildCrashed") if ending.how == "crashed" else (NOT_STARTED, "ChildKilled")
        how = f"was killed by {ending.status}"
    else:
        starved = exhausted(last)
        code, name = (NOT_STARTED, "ChildOutOfMemory") if starved else (DEFECT, "ChildFailed")
        running = ending.how == "running"
        how = "closed its pipes and did not exit" if running else f"exited with status {ending.status}"
    return NvmlFailure(call=seen.call, code=code, name=name, detail=f"the process {how} {detail}{last}")


def _late(seen: _Transcript, seconds: float) -> NvmlFailure:
    detail = f"no response within {seconds:.0f} s{f' about {seen.subject}' if seen.subject else ''}"
    return NvmlFailure(call=seen.call, code=LATE, name="ChildTimedOut", detail=detail)
