"""Shared memory as a container gets it by default: too small for NCCL."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

MIB = 1 << 20


def _apply(machine: Machine, mib: int) -> None:
    machine.surroundings |= {"shm_bytes": mib * MIB, "shm_free_bytes": mib * MIB}


FAULT = Fault(name="shm-small", summary="shared memory (/dev/shm) is small", apply=_apply, parameters={"mib": 64})
