"""The parent: requests steps from a child, each with a deadline, and starts another one after one was lost."""

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TypeVar

from msgspec.structs import replace

from gpucheck.measure.values import Answer, CopyStep, Failure, Opened, Setup
from gpucheck.processes.python import python_module
from gpucheck.processes.worker import Lost, Worker, workplace

CHILD = python_module("gpucheck.measure.running.child")
OPEN_S = 120.0  # importing a framework from a cold disk and making contexts on eight GPUs takes at most this long
SLACK = 10.0  # times the planned device time, after which a step is stuck
Shape = TypeVar("Shape")


class Supervised:
    """A child with an engine; started on first use, and again after one was lost. Use as a context manager.

    patience_s: minimum time limit of a step. opened: the setup of the first child, None before.
    removed: ``NAME=value`` of each environment variable that is removed for the child.
    """

    def __init__(self, setup: Setup, patience_s: float, command: Sequence[str] = CHILD) -> None:
        self.setup = setup
        self.patience_s = patience_s
        self.command = command
        self.opened: Opened | None = None
        self.worker: Worker | None = None
        self._place = ExitStack()

    def __enter__(self) -> "Supervised":  # noqa: PYI034 - Self needs Python 3.11
        self.environment, self.removed = self._place.enter_context(workplace("copies"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.worker is not None:
            self.worker.end(by_itself=kind is None)
        self._place.close()

    def open(self) -> Opened | Failure:
        try:
            self.worker = Worker(self.command, self.environment)
        except OSError as error:
            return Failure(kind="no-process", purpose="open", detail=f"no child process: {error}")
        # A device that hangs for the first child also hangs for the second, so its limit is shorter.
        limit = OPEN_S if self.opened is None else max(self.patience_s, OPEN_S / 4)
        answer = self._exchange(self.worker, self.setup, limit, "open", Opened)
        if isinstance(answer, Opened):
            self.opened = self.opened or answer
        return answer

    def run_step(self, step: CopyStep) -> Answer | Failure:
        """Run one step. A child that hangs, exits or sends an invalid result is terminated."""
        if self.worker is None:
            opened = self.open()
            if isinstance(opened, Failure):
                return replace(opened, flows=step.flows, purpose=step.purpose)
        assert self.worker is not None  # noqa: S101 - it has just opened
        limit = max(self.patience_s, SLACK * step.planned_s)
        answer = self._exchange(self.worker, step, limit, step.purpose, Answer)
        if isinstance(answer, Failure) and answer.kind != "not-timed" and self.worker is not None:
            # A CUDA error may have corrupted the context: the next step gets a new child.
            self.worker.end()
            self.worker = None
        if isinstance(answer, Failure) and not answer.flows:
            return replace(answer, flows=step.flows)
        return answer

    def _exchange(
        self, worker: Worker, request: Setup | CopyStep, limit_s: float, purpose: str, shape: type[Shape]
    ) -> Shape | Failure:
        worker.send(request)
        try:
            return worker.answer(shape | Failure, limit_s)  # type: ignore[no-any-return]  # as decoded
        except Lost as lost:
            self.worker = None
            return Failure(kind=lost.kind, purpose=purpose, detail=lost.detail)
