"""torchrun, ending with its parent: ``python -m gpucheck.measure.collectives.agent PARENT_PID ARGUMENTS...``."""

import os
import sys

from gpucheck.measure.collectives.values import AGENT
from gpucheck.processes.lifeline import end_with_parent


def main(parent_pid: str, arguments: list[str]) -> None:
    """Become torchrun. What it starts ends with it."""
    end_with_parent(int(parent_pid))
    os.environ[AGENT] = str(os.getpid())
    from torch.distributed.run import main as torchrun

    torchrun(arguments)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
