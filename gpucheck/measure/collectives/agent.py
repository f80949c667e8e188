"""torchrun, ending with its parent: ``python -m gpucheck.measure.collectives.agent PARENT_PID ARGUMENTS...``."""

import sys

from gpucheck.processes.lifeline import end_with_parent


def main(parent_pid: str, arguments: list[str]) -> None:
    """Become torchrun. What it starts ends with it."""
    end_with_parent(int(parent_pid))
    from torch.distributed.run import main as torchrun

    torchrun(arguments)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
