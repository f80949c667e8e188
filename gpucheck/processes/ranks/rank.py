"""The inside of one rank: read its spec from stdin, do the work, send where it is and what came of it, a line each."""

import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, Literal, NoReturn, TypeVar

import msgspec

from gpucheck.processes.lifeline import reply, setup_of, show_stacks

MESSAGE_CHARACTERS = 4000
# The file whose frame marks the main thread among the stacks of a rank.
STACK_MARK = "gpucheck/processes/ranks/rank.py"
Options = TypeVar("Options")


class RankSpec(msgspec.Struct, Generic[Options], frozen=True, kw_only=True):
    """Configuration of one rank.

    rank: over all hosts. local_rank: on this host. processes: ranks over all hosts.
    parent_pid: the process that started the rank; the rank never outlives it. folder: private to the ranks of this
    host, and removed after the run. options: the same for all ranks.
    """

    rank: int
    local_rank: int
    processes: int
    parent_pid: int
    folder: str
    options: Options

    @property
    def store(self) -> Path:
        """The rendezvous on one host: a file needs no port, so no port can be taken or left open."""
        return Path(self.folder) / "store"


class RankError(msgspec.Struct, frozen=True, kw_only=True):
    """The exception that ended a rank.

    missing: the module that was not found. frames: innermost first. raised: time.monotonic(). kind: the program's own
    classification, empty if it has none.
    """

    type: str
    message: str
    missing: str | None = None
    frames: tuple[str, ...] = ()
    raised: float = 0.0
    kind: str = ""


class Message(msgspec.Struct, frozen=True):
    """One line of a rank. ready: its stacks can be requested. at: where it is, in the program's own form.

    part: its report so far. shared: the report of a rank on another host.
    """

    kind: Literal["ready", "at", "part", "shared", "report", "error"]
    value: msgspec.Raw


class Sender:
    """The rank's end of the pipe. It has room for thousands of lines, and they outlive a SIGKILL."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def send(self, kind: str, value: Any = None) -> None:
        reply(self.descriptor, {"kind": kind, "value": value})


def run_rank(
    descriptor: int,
    options: type[Options],
    work: Callable[[RankSpec[Options], Sender], msgspec.Struct],
    classify: Callable[[Exception], str] = lambda error: str(getattr(error, "kind", "")),
) -> NoReturn:
    """Do the work of one rank and exit: 0 with a report, 1 with a RankError; any other status is a finding.

    descriptor: the first argument of the program. classify: gives the kind of an error, by default its own.
    """
    spec = setup_of(sys.stdin.buffer, RankSpec[options])  # type: ignore[valid-type]
    sender = Sender(descriptor)
    with stack_file(spec.folder, spec.rank).open("w") as stack:
        show_stacks(stack)
        sender.send("ready")
        try:
            sender.send("report", work(spec, sender))
            status = 0
        except Exception as error:
            sender.send("error", _described(error, classify(error)))
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: tearing down a process group whose peers are gone can block for minutes, and the result is out.
        os._exit(status)


def stack_file(folder: str, rank: int) -> Path:
    """Return where faulthandler writes the stacks of the rank, on SIGUSR1 or on a crash."""
    return Path(folder) / f"stack-{rank}.txt"


def _described(error: Exception, kind: str) -> RankError:
    frames = traceback.extract_tb(error.__traceback__)
    return RankError(
        type=type(error).__name__,
        message=str(error)[:MESSAGE_CHARACTERS],
        missing=error.name if isinstance(error, ModuleNotFoundError) else None,
        frames=tuple(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames)),
        raised=time.monotonic(),
        kind=kind,
    )
