"""The child that asks NVML, so that a driver that hangs or crashes takes only this process with it.

It writes lines to the file descriptor that it is given: ``> CALL SUBJECT`` before each call, ``= JSON`` (an NvmlReading
or an NvmlFailure) at the end. The depth of the pass is ``health`` or ``identity``, which is shorter.
"""

import os

import msgspec

from gpucheck.host import simulated
from gpucheck.processes.lifeline import end_with_parent


def main(descriptor: int, depth: str, parent_pid: int) -> None:
    """Ask, answer and end at once: taking the interpreter and the driver's library apart costs as much as asking."""

    def entering(call: str, subject: str) -> None:
        os.write(descriptor, f"> {call} {subject}\n".encode())

    end_with_parent(parent_pid)
    entering("dlopen", "libnvidia-ml.so.1")
    simulated.preload()
    from gpucheck.host.nvml.reading import read_nvml

    with open(descriptor, "wb") as pipe:
        pipe.write(b"= " + msgspec.json.encode(read_nvml(entering, health=depth == "health", shut_down=False)) + b"\n")
    os._exit(0)
