"""A check in a thread of its own: a read of sysfs or of the kernel log that hangs is a finding, and holds nobody up."""

import sys
import threading
import traceback
from types import FrameType

from gpucheck.model import Host
from gpucheck.run._step import Outcome, Step


class StuckError(Exception):
    """A step did not end in time. call: where it stands. stack: the way there, innermost last."""

    def __init__(self, seconds: float, stack: tuple[str, ...]) -> None:
        self.seconds = seconds
        self.stack = stack
        self.call = stack[-1] if stack else "a call that cannot be seen"
        super().__init__(f"no end within {seconds:g} s, in {self.call}")


def in_time(step: Step, host: Host, seconds: float) -> Outcome:
    """The step's outcome. Raises what the step raises, and StuckError when it takes longer; its thread is left behind.

    It is a daemon, for a thread that waits in the kernel cannot be ended, and must not keep the process from ending.
    """
    answers: list[Outcome] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(step.run(host))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True, name=f"gpucheck {step.name}")
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if answers:
        return answers[0]
    raise StuckError(seconds, _stack(sys._current_frames().get(thread.ident or 0)))


def _stack(frame: FrameType | None) -> tuple[str, ...]:
    return tuple(f"{line.filename}:{line.lineno} in {line.name}" for line in traceback.extract_stack(frame)[-6:])
