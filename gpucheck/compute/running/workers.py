"""Real devices: one child process each, all of which get a step at the same time. A child that hangs is ended."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from gpucheck.compute.values import Answer, ComputeStep, Failure, Opened, Setup
from gpucheck.model.device import Device
from gpucheck.processes.python import python_module
from gpucheck.processes.worker import Lost, Worker, workplace

# Bit-equal repeats need a fixed cuBLAS workspace.
SETTINGS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "OMP_NUM_THREADS": "1"}
CHILD = python_module("gpucheck.compute.running.child")
OPEN_S = 180.0  # eight imports of torch from a cold disk, contexts, and kernels that the driver compiles
# Around the time of a step: the first product loads its kernels, a slow GPU takes seconds for seven samples.
SLACK_S = 60.0


class Workers:
    """A Bench. small: sizes for CPUs. command: of the child."""

    def __init__(self, devices: Sequence[Device], *, small: bool = False, command: Sequence[str] = CHILD) -> None:
        self.devices = tuple(devices)
        self.small = small
        self.command = command
        self._place = ExitStack()
        self._workers: dict[int, Worker] = {}

    def open(self) -> Sequence[Opened | Failure]:
        """Start all children, then wait for each."""
        environment, _ = self._place.enter_context(workplace("compute"))
        failed: dict[int, Failure] = {}
        divided = any(device.is_mig for device in self.devices)  # CUDA then shows no other device by itself
        for place, device in enumerate(self.devices):
            own = {"CUDA_VISIBLE_DEVICES": str(device.uuid)} if divided else {}
            try:
                self._workers[place] = Worker(self.command, environment | SETTINGS | own)
            except OSError as error:
                failed[place] = Failure(kind="no-process", detail=f"no child process: {error}")
                continue
            self._workers[place].send(Setup(device=device, parent_pid=os.getpid(), small=self.small))
        since = time.monotonic()
        places = range(len(self.devices))
        return [failed.get(place) or self._answer(place, since, OPEN_S, "start", Opened) for place in places]

    def run(self, step: ComputeStep, places: Sequence[int]) -> Mapping[int, Answer | Failure]:
        """Send the step to all, then wait for each until the same deadline."""
        there = [place for place in places if place in self._workers]
        for place in there:
            self._workers[place].send(step)
        since = time.monotonic()
        return {place: self._answer(place, since, step.seconds + SLACK_S, step.label, Answer) for place in there}

    def close(self) -> None:
        """End the children: those that are idle by the end of their input, the others by a signal."""
        for place in tuple(self._workers):
            self._workers.pop(place).end(by_itself=True)
        self._place.close()

    def _answer(self, place: int, since: float, limit_s: float, what: str, shape: Any) -> Any:
        worker = self._workers[place]
        try:
            answer = worker.answer(shape | Failure, limit_s, since)
        except Lost as lost:
            del self._workers[place]
            kind = "crashed" if lost.kind == "killed" else lost.kind
            return Failure(kind=kind, detail=lost.detail, step=what)
        if isinstance(answer, Failure):  # after a CUDA error a context may be broken: nothing more is asked of it
            self._workers.pop(place).end()
        return answer
