"""Shared memory as a container gets it by default: too small for NCCL."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

MIB = 1 << 20


def _apply(machine: Machine, mib: int = 64) -> None:
    machine.surroundings |= {"shm_bytes": mib * MIB, "shm_free_bytes": mib * MIB}


FAULT = Fault("shm-small", "shared memory (/dev/shm) is small", _apply)
