"""The child that asks NVML, so that a driver that hangs or crashes takes only this process with it.

``python -m gpucheck.host.nvml_child FD DEPTH`` writes lines to the file descriptor FD: ``> CALL SUBJECT`` before each
call, ``= JSON`` (an NvmlReading or an NvmlFailure) at the end. DEPTH is ``health`` or ``identity``, the shorter pass.
"""

import os
import sys

import msgspec

from gpucheck.host import simulated


def main(descriptor: int, depth: str) -> None:
    """Ask and answer."""

    def entering(call: str, subject: str) -> None:
        os.write(descriptor, f"> {call} {subject}\n".encode())

    entering("dlopen", "libnvidia-ml.so.1")
    simulated.preload()
    from gpucheck.host import nvml

    with open(descriptor, "wb") as pipe:
        pipe.write(b"= " + msgspec.json.encode(nvml.read(entering, health=depth == "health")) + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
