"""Real devices: one child process each, all of which get a step at the same time. A child that hangs is ended."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TypeVar

import msgspec

from gpucheck.compute.values import Answer, Failure, FailureKind, Opened, Setup, Step
from gpucheck.measure.values import Device
from gpucheck.processes.child import GRACE_S, Child
from gpucheck.processes.environment import copying_environment
from gpucheck.processes.exhausted import exhausted
from gpucheck.processes.python import python_module
from gpucheck.processes.signals import in_a_hurry
from gpucheck.processes.temporary import private_environment, temporary_folder

# Bit-equal repeats need a fixed cuBLAS workspace.
SETTINGS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "OMP_NUM_THREADS": "1"}
CHILD = python_module("gpucheck.compute.running.child")
OPEN_S = 180.0  # eight imports of torch from a cold disk, contexts, and kernels that the driver compiles
# Around the time of a step: the first product loads its kernels, a slow GPU takes seconds for seven samples.
SLACK_S = 60.0
Shape = TypeVar("Shape")


class Workers:
    """A Bench. small: sizes for CPUs. command: of the child."""

    def __init__(
        self,
        devices: Sequence[Device],
        *,
        small: bool = False,
        command: Sequence[str] = CHILD,
    ) -> None:
        self.devices = tuple(devices)
        self.small = small
        self.command = command
        self.environment = copying_environment(os.environ)[0] | SETTINGS
        self._folders = ExitStack()
        self._children: dict[int, Child] = {}

    def open(self) -> Sequence[Opened | Failure]:
        """Start all children, then wait for each."""
        with suppress(OSError):  # no writable directory: a child computes without one
            folder = self._folders.enter_context(temporary_folder("compute"))
            self.environment |= private_environment(folder, self.environment)
        failed: dict[int, Failure] = {}
        divided = any(device.is_mig for device in self.devices)  # CUDA then shows no other device by itself
        for place, device in enumerate(self.devices):
            try:
                own = {"CUDA_VISIBLE_DEVICES": str(device.uuid)} if divided else {}
                child = Child(self.command, self.environment | own, stdin=subprocess.PIPE)
            except OSError as error:
                failed[place] = Failure(kind="no-process", detail=f"no child process: {error}")
                continue
            self._children[place] = child
            setup = Setup(device=device, parent_pid=os.getpid(), small=self.small)
            child.send(msgspec.json.encode(setup))
        deadline = time.monotonic() + OPEN_S
        answers: list[Opened | Failure] = []
        for place in range(len(self.devices)):
            failure = failed.get(place)
            answers.append(failure if failure is not None else self._line(place, deadline, OPEN_S, "start", Opened))
        return answers

    def run(self, step: Step, places: Sequence[int]) -> Mapping[int, Answer | Failure]:
        """Send the step to all, then wait for each until the same deadline."""
        line = msgspec.json.encode(step)
        there = [place for place in places if place in self._children]
        for place in there:
            self._children[place].send(line)
        limit = step.seconds + SLACK_S
        deadline = time.monotonic() + limit
        return {place: self._line(place, deadline, limit, step.label, Answer) for place in there}

    def close(self) -> None:
        """End the children: those that are idle by the end of their input, the others by a signal."""
        # One that computes sees the end of its input only after its step: Ctrl-C does not wait for that.
        patience_s = 0.0 if in_a_hurry() else 10 * GRACE_S
        for place in tuple(self._children):
            self._children.pop(place).end(patience_s=patience_s)
        self._folders.close()

    def _line(self, place: int, deadline: float, limit_s: float, what: str, shape: type[Shape]) -> Shape | Failure:
        child = self._children[place]
        try:
            line = child.read_line(deadline)
            if line is not None:
                answer = msgspec.json.decode(line, type=shape | Failure)
                if not isinstance(answer, Failure):
                    return answer  # type: ignore[no-any-return]  # of the shape, as decoded
                failure = answer
            else:
                failure = self._ended(child, what)
        except TimeoutError:
            failure = Failure(kind="stuck", detail=f"no end of {what} within {limit_s:g} s", step=what)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            failure = Failure(kind="defect", detail=f"its output is invalid: {error}", step=what)
        # After a CUDA error a context may be broken, so nothing more is asked of this process.
        self._children.pop(place).end()
        return failure

    @staticmethod
    def _ended(child: Child, what: str) -> Failure:
        ending = child.how_it_ended()
        kind: FailureKind = "crashed" if ending.how in ("crashed", "killed") else "defect"
        how = f"ended by {ending.status}" if kind == "crashed" else f"ended with exit status {ending.status or '0'}"
        if kind == "defect" and exhausted(ending.last_line):
            kind = "no-resources"
        last = f"; its last line: {ending.last_line[:300]}" if ending.last_line else ""
        return Failure(kind=kind, detail=f"the process {how} during {what}{last}", step=what)
