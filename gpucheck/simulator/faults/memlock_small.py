"""The limit of locked memory is too low to register buffers with a network card."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, kib: int = 64) -> None:
    machine.surroundings["memlock_bytes"] = kib * 1024


FAULT = Fault("memlock-small", "RLIMIT_MEMLOCK is small", _apply)
