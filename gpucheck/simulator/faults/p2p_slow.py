"""A pair of GPUs copies slower than its links should allow, both ways, and nothing else shows it."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

ALL = 100


def pair_of(machine: Machine, pair: str) -> dict[str, object]:
    """``0-1`` as the two GPUs of a measurement fault. Raises ValueError for anything but two GPUs of the machine."""
    a, dash, b = pair.partition("-")
    if not (dash and a.isdigit() and b.isdigit() and a.isascii() and b.isascii()) or a == b:
        raise ValueError(f"pair={pair}: a pair is written 0-1, two different GPUs by their number in the profile")
    for number in (a, b):
        machine.gpu(int(number))
    return {"a": int(a), "b": int(b)}


def loss(percent: int) -> dict[str, object]:
    """The lost part of the bandwidth. Raises ValueError for all of it or more."""
    if not 0 < percent < ALL:
        raise ValueError(f"percent={percent}: choose 1 to 99, the part of the bandwidth that is lost")
    return {"percent": percent}


def _apply(machine: Machine, pair: str, percent: int = 40) -> None:
    machine.surround("measurement", fault="p2p-slow", **pair_of(machine, pair), **loss(percent))


FAULT = Fault("p2p-slow", "copies between two GPUs lose part of their bandwidth, both ways", _apply)
