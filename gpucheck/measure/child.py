"""The process that touches the devices: ``python -m gpucheck.measure.child FD``.

One JSON line in on stdin (Setup, then Steps), one out on the descriptor (Opened, Answer or Failure). Whatever it
prints elsewhere is kept for the report of its death and never mistaken for an answer.
"""

import os
import sys
from typing import BinaryIO

import msgspec

from gpucheck.measure.engine import CopyEngine, CopyRefused
from gpucheck.measure.execute import execute
from gpucheck.measure.values import Answer, Failure, Opened, Setup, Step
from gpucheck.processes.lifeline import end_with_parent


def engine_of(name: str) -> CopyEngine:
    """The copy engine of this name; its packages are imported when it opens."""
    if name == "simulated":
        from gpucheck.measure.simulated import SimulatedEngine

        return SimulatedEngine()
    if name == "cpu":
        from gpucheck.measure.cpu import CpuEngine

        return CpuEngine()
    if name == "cupy":
        from gpucheck.measure.cupy_cuda import CupyEngine

        return CupyEngine()
    from gpucheck.measure.torch_cuda import TorchEngine

    return TorchEngine()


def open_engine(engine: CopyEngine, setup: Setup) -> Opened | Failure:
    """Open it, or say why not."""
    try:
        return engine.open(setup)
    except ModuleNotFoundError as error:
        return Failure(kind="missing-package", purpose="open", detail=str(error.name))
    except (LookupError, ValueError, RuntimeError, OSError, MemoryError, CopyRefused) as error:
        return Failure(kind="not-started", purpose="open", detail=_words(error))


def answer(engine: CopyEngine, step: Step) -> Answer | Failure:
    """Do one step. What the driver refuses becomes a value; what else goes wrong ends the child, with a traceback."""
    try:
        return execute(engine, step)
    except CopyRefused as error:
        return Failure(kind="refused", purpose=step.purpose, flows=(error.flow,), detail=str(error))
    except RuntimeError as error:  # what torch and CuPy make of a CUDA error
        return Failure(kind="refused", purpose=step.purpose, flows=step.flows, detail=_words(error))


def _words(error: Exception) -> str:
    """The first line: the rest of a CUDA error is advice for programmers."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def main(descriptor: int, requests: BinaryIO) -> None:
    """Answer until stdin closes."""
    setup = msgspec.json.decode(requests.readline(), type=Setup)
    end_with_parent(setup.parent_pid)
    engine = engine_of(setup.engine)
    opened = open_engine(engine, setup)
    _send(descriptor, opened)
    if isinstance(opened, Failure):
        return
    try:
        for line in requests:
            _send(descriptor, answer(engine, msgspec.json.decode(line, type=Step)))
    finally:
        engine.close()


def _send(descriptor: int, value: Opened | Answer | Failure) -> None:
    data = msgspec.json.encode(value) + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.stdin.buffer)
