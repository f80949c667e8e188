"""The process that uses the devices: ``python -m gpucheck.measure.running.child FD``.

It reads JSON lines on stdin (Setup, then Steps) and writes a JSON line for each to the descriptor (Opened, Answer or
Failure). Other output is kept for the report if it exits early, and is not read as a result.
"""

import os
import sys
import traceback
from pathlib import Path
from typing import BinaryIO

import msgspec

from gpucheck.measure.engines.cuda.errors import error_text, kind_of
from gpucheck.measure.engines.protocol import MISTAKES, CopyEngine, NotOpened, NotTimed
from gpucheck.measure.running.execute import execute
from gpucheck.measure.values import Answer, Failure, Opened, Setup, Step
from gpucheck.processes.lifeline import end_with_parent


def engine_of(name: str) -> CopyEngine:
    """Return the copy engine of this name; its packages are imported when it opens."""
    if name == "cpu":
        from gpucheck.measure.engines.cpu import CpuEngine

        return CpuEngine()
    if name == "torch":
        from gpucheck.measure.engines.torch.engine import TorchEngine

        return TorchEngine()
    from gpucheck.measure.engines.driver.engine import DriverEngine

    return DriverEngine()


def open_engine(engine: CopyEngine, setup: Setup) -> Opened | Failure:
    """Open the engine, or return why that failed."""
    try:
        return engine.open(setup)
    except ModuleNotFoundError as error:
        return Failure(kind="missing-package", purpose="open", detail=str(error.name))
    except NotOpened as error:
        return Failure(kind="not-started", purpose="open", detail=str(error), fix=error.fix)
    except MISTAKES as error:
        return Failure(kind="defect", purpose="open", detail=_located(error))
    except Exception as error:
        return Failure(kind="not-started", purpose="open", detail=_first_line(error))


def answer(engine: CopyEngine, step: Step) -> Answer | Failure:
    """Run one step, or return why that failed. Only an error that CUDA returned concerns the copy."""
    try:
        return execute(engine, step)
    except NotTimed as error:
        return Failure(kind="not-timed", purpose=step.purpose, flows=step.flows, detail=str(error))
    except Exception as error:
        code = engine.error_code(error)
        if code is not None:
            said, known = str(error), error_text(code)
            detail = said.splitlines()[0] if said.startswith(known) else f"{known}: {_first_line(error)}"
            return Failure(kind=kind_of(code), purpose=step.purpose, flows=step.flows, detail=detail, code=code)
        if isinstance(error, MemoryError):  # CuPy's OutOfMemoryError is one too
            return Failure(kind="no-memory", purpose=step.purpose, flows=step.flows, detail=_first_line(error))
        return Failure(kind="defect", purpose=step.purpose, flows=step.flows, detail=_located(error))


def _first_line(error: Exception) -> str:
    """Return type and first line: the rest of a CUDA error is advice for developers."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _located(error: Exception) -> str:
    """Return the same with the location, for reports of defects."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return _first_line(error) + at


def main(descriptor: int, requests: BinaryIO) -> None:
    """Run requests until stdin closes."""
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
