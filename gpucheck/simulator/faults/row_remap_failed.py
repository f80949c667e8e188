"""A row of memory could not be replaced, for want of spares: the GPU is to be returned."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

SPARES = 8  # of a bank


def _apply(machine: Machine, gpu: int) -> None:
    faulty = machine.gpu(gpu)
    if not faulty.model.row_remap or faulty.mig:
        raise ValueError(f"NVML reports no remapped rows of GPU {gpu} ({faulty.model.name})")
    faulty.answer({"remap.uncorrectable": SPARES, "remap.failed": 1, "remap.banks.none": 1})
    faulty.answer({"remap.banks.all": faulty.model.memory_mib // 128 - 1})


FAULT = Fault("row-remap-failed", "a GPU has no spare left for a bad row of memory", _apply)
