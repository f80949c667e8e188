"""Copies that are slow, wrong, rejected or never end; GPUs that compute slowly or wrongly; ranks that fail."""

import re

from gpucheck.host.nvml.reading import P2P_STATUS
from gpucheck.simulator.faults import break_training, check_choice, fault, lost, one_of_the_first_steps
from gpucheck.simulator.machine import Machine

MOST = 20
KINDS = ("zeros", "stale", "untouched", "other-pair", "shifted", "bit-flip")
# Chipset, GPU, topology not supported, disabled in the registry, not supported
STATUSES = {name: code for code, name in P2P_STATUS.items() if name != "OK"}


@fault("copy times scatter by percent (standard deviation) and grow by drift percent in 10 s")
def copy_noise(machine: Machine, percent: int = 3, drift: int = 0, seed: int = 1) -> None:
    if percent > MOST or drift > MOST:
        raise ValueError(f"percent={percent},drift={drift}: choose 0 to {MOST} for both")
    machine.surround("measurement", fault="copy-noise", percent=percent, drift=drift, seed=seed)


@fault("copies between one GPU and its Grace CPU lose part of their bandwidth")
def c2c_slow(machine: Machine, gpu: int, percent: int = 70) -> None:
    if not machine.gpu(gpu).model.coherent:
        raise ValueError(f"gpu={gpu}: a {machine.gpu(gpu).model.name} has no NVLink-C2C")
    machine.surround("measurement", fault="c2c-slow", a=gpu, percent=lost(percent))


@fault("copies between two GPUs deliver wrong data without an error")
def p2p_corrupt(machine: Machine, pair: str, kind: str = "zeros") -> None:
    check_choice("kind", kind, KINDS)
    machine.surround("measurement", fault="p2p-corrupt", **pair_of(machine, pair), kind=kind)


@fault("copies between two GPUs end with a CUDA error (217: peer access unsupported)")
def p2p_error(machine: Machine, pair: str, code: int = 217) -> None:
    machine.surround("measurement", fault="p2p-error", **pair_of(machine, pair), code=code)


@fault("two GPUs that copy to each other at the same time share the rate of one direction")
def p2p_half_duplex(machine: Machine, pair: str) -> None:
    machine.surround("measurement", fault="p2p-half-duplex", **pair_of(machine, pair))


def pair_of(machine: Machine, pair: str) -> dict[str, int]:
    """``0-1`` as the two GPUs of a measurement fault. Raises ValueError for anything but two GPUs of the machine."""
    found = re.fullmatch(r"([0-9]+)-([0-9]+)", pair)
    if not found or int(found[1]) == int(found[2]):
        raise ValueError(f"pair={pair}: a pair is written 0-1, two different GPUs by their number in the profile")
    for number in found.groups():
        machine.gpu(int(number))
    return {"a": int(found[1]), "b": int(found[2])}


@fault("copies between two GPUs lose part of their bandwidth, both ways")
def p2p_slow(machine: Machine, pair: str, percent: int = 40) -> None:
    machine.surround("measurement", fault="p2p-slow", **pair_of(machine, pair), percent=lost(percent))


@fault("copies from one GPU to another lose part of their bandwidth, the other way they do not")
def p2p_slow_direction(machine: Machine, pair: str, percent: int = 40) -> None:
    machine.surround("measurement", fault="p2p-slow-direction", **pair_of(machine, pair), percent=lost(percent))


@fault("the driver denies peer to peer between two GPUs")
def p2p_status(machine: Machine, pair: str, status: str = "CNS") -> None:
    """Both ways."""
    check_choice("status", status, STATUSES)
    a, b = (machine.gpus[number] for number in pair_of(machine, pair).values())
    a.p2p_refused[b.function.bus_id] = b.p2p_refused[a.function.bus_id] = STATUSES[status]


@fault("copies between two GPUs never end")
def p2p_stuck(machine: Machine, pair: str) -> None:
    machine.surround("measurement", fault="p2p-stuck", **pair_of(machine, pair))


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
