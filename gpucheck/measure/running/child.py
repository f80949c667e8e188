"""The process that uses the devices: ``python -m gpucheck.measure.running.child FD``.

It reads JSON lines on stdin (Setup, then Steps) and writes a JSON line for each to the descriptor (Opened, Answer or
Failure). Other output is kept for the report if it exits early, and is not read as a result.
"""

import sys
from typing import BinaryIO

import msgspec

from gpucheck.measure.engines.cuda_errors import error_text, kind_of
from gpucheck.measure.engines.protocol import MISTAKES, CopyEngine, NotOpened, NotTimed
from gpucheck.measure.running.execute import execute
from gpucheck.measure.values import Answer, Failure, FailureKind, Opened, Setup, Step
from gpucheck.processes.exhausted import exhausted
from gpucheck.processes.lifeline import end_with_parent, first_line, located, reply


def engine_of(name: str) -> CopyEngine:
    """Return the copy engine of this name; its packages are imported when it opens."""
    if name == "cpu":
        from gpucheck.measure.engines.cpu import CpuEngine

        return CpuEngine()
    from gpucheck.measure.engines.driver.engine import DriverEngine

    return DriverEngine()


def open_engine(engine: CopyEngine, setup: Setup) -> Opened | Failure:
    try:
        return engine.open(setup)
    except ModuleNotFoundError as error:
        return Failure(kind="missing-package", purpose="open", detail=str(error.name))
    except NotOpened as error:
        return Failure(kind="not-started", purpose="open", detail=str(error), fix=error.fix)
    except MISTAKES as error:
        return Failure(kind="defect", purpose="open", detail=located(error))
    except Exception as error:
        kind: FailureKind = "no-resources" if exhausted(error) else "not-started"
        return Failure(kind=kind, purpose="open", detail=first_line(error))


def answer(engine: CopyEngine, step: Step) -> Answer | Failure:
    """Run one step, or return why that failed. Only an error that CUDA returned concerns the copy."""
    try:
        return execute(engine, step)
    except NotTimed as error:
        return Failure(kind="not-timed", purpose=step.purpose, flows=step.flows, detail=str(error))
    except Exception as error:
        code = engine.error_code(error)
        if code is not None:
            message, known = str(error), error_text(code)
            detail = message.splitlines()[0] if message.startswith(known) else f"{known}: {first_line(error)}"
            return Failure(kind=kind_of(code), purpose=step.purpose, flows=step.flows, detail=detail, code=code)
        if isinstance(error, MemoryError):  # CuPy's OutOfMemoryError is one too
            return Failure(kind="no-memory", purpose=step.purpose, flows=step.flows, detail=first_line(error))
        kind: FailureKind = "no-resources" if exhausted(error) else "defect"
        return Failure(kind=kind, purpose=step.purpose, flows=step.flows, detail=located(error))


def main(descriptor: int, requests: BinaryIO) -> None:
    """Run requests until stdin closes."""
    setup = msgspec.json.decode(requests.readline(), type=Setup)
    end_with_parent(setup.parent_pid)
    engine = engine_of(setup.engine)
    opened = open_engine(engine, setup)
    reply(descriptor, opened)
    if isinstance(opened, Failure):
        return
    try:
        for line in requests:
            reply(descriptor, answer(engine, msgspec.json.decode(line, type=Step)))
    finally:
        engine.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.stdin.buffer)
