"""Errors in the caches and registers of a GPU, which the driver counts apart from those of its memory."""

from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import Machine

AMPERE = 7  # nvmlDeviceArchitecture_t: the first that reports them


def _apply(machine: Machine, gpu: int, kind: str = "sec_ded", count: int = 1, threshold: int = 0) -> None:
    """kind: parity, sec_ded or corrected. threshold: 1 where the driver reports that there were too many."""
    faulty = machine.gpu(gpu)
    if not (faulty.model.ecc and faulty.model.ecc_enabled and faulty.model.architecture >= AMPERE):
        raise ValueError(f"GPU {gpu} ({faulty.model.name}) counts no errors of its SRAM")
    check_choice("kind", kind, ("parity", "sec_ded", "corrected"))
    faulty.answer({f"sram.volatile.{kind}": count, f"sram.aggregate.{kind}": count, "sram.exceeded": min(threshold, 1)})


FAULT = Fault("sram-errors", "ECC errors in the caches and registers of a GPU", _apply)
