"""What is wrong with training on a simulated machine: surroundings.json describes it, the real ranks do it."""

from gpucheck.simulator.machine import Machine

RANKS = 2


def break_training(machine: Machine, fault: str, rank: int, **parameters: int) -> None:
    """Have a rank of the training test misbehave. Raises ValueError for a rank that it does not have."""
    if rank >= RANKS:
        raise ValueError(f"rank={rank}: the training test has ranks 0 to {RANKS - 1}")
    machine.surround("training", fault=fault, rank=rank, **parameters)


def one_of_the_first_steps(step: int) -> int:
    """A step that every training makes. Raises ValueError for another."""
    if not 1 <= step <= 10:
        raise ValueError(f"step={step}: choose one of 1 to 10, which every training makes")
    return step
