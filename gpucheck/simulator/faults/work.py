"""GPUs that compute slowly or wrongly, and ranks of a training that fail."""

from gpucheck.simulator.faults import break_training, check_choice, fault, lost, one_of_the_first_steps
from gpucheck.simulator.machine import Machine


@fault("one bit arrives flipped in one rank's all-reduce")
def allreduce_bitflip(machine: Machine, rank: int = 1, step: int = 6) -> None:
    """One bit of one rank's averaged gradients arrives flipped: far below any tolerance, and still damage."""
    break_training(machine, "allreduce-bitflip", rank, step=one_of_the_first_steps(step))


@fault("a GPU loses part of its matrix rate at the same clock")
def gemm_slow(machine: Machine, gpu: int, percent: int = 15) -> None:
    machine.gpu(gpu).compute["matrix_loss"] = lost(percent) / 100


@fault("a GPU loses part of its memory bandwidth")
def memory_slow(machine: Machine, gpu: int, percent: int = 15) -> None:
    machine.gpu(gpu).compute["memory_loss"] = lost(percent) / 100


@fault("a training rank is killed in the middle of an all-reduce")
def rank_dies(machine: Machine, rank: int = 1, step: int = 3) -> None:
    break_training(machine, "rank-dies", rank, step=one_of_the_first_steps(step))


@fault("a training rank stops answering before an all-reduce")
def rank_hang(machine: Machine, rank: int = 1, step: int = 3) -> None:
    break_training(machine, "rank-hang", rank, step=one_of_the_first_steps(step))


@fault("a GPU computes wrong values, at random or always the same, and reports no error")
def sdc(machine: Machine, gpu: int, rate: str = "1e-9", kind: str = "random") -> None:
    try:
        wrong = float(rate)
    except ValueError:
        wrong = -1.0
    if not 0 < wrong <= 1:
        raise ValueError(f"rate={rate}: the part of the computed values that is wrong, such as 1e-9")
    check_choice("kind", kind, ("random", "always"))
    machine.gpu(gpu).compute |= {"wrong": wrong} if kind == "random" else {"always": True}


@fault("a training rank computes several times as long as the others")
def slow_rank(machine: Machine, rank: int = 1, factor: int = 2) -> None:
    if factor < 2:
        raise ValueError(f"factor={factor}: a slow rank takes 2 times as long or more")
    break_training(machine, "slow-rank", rank, factor=factor)
