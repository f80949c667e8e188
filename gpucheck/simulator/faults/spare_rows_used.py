"""Banks of memory whose spare rows are used up: the next bad row there cannot be replaced."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, gpu: int, banks: int = 1) -> None:
    faulty = machine.gpu(gpu)
    if not faulty.model.row_remap or faulty.mig:
        raise ValueError(f"NVML reports no remapped rows of GPU {gpu} ({faulty.model.name})")
    faulty.answer({"remap.banks.none": banks, "remap.banks.all": faulty.model.memory_mib // 128 - banks})


FAULT = Fault("spare-rows-used", "banks of a GPU's memory have no spare row left", _apply)
