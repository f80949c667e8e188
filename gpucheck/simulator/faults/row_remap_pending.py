"""A row of memory was replaced and the GPU needs a reset to use the spare; before Ampere, a page to be retired."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

RESET = 1  # nvmlDeviceGpuRecoveryAction_t


def _apply(machine: Machine, gpu: int) -> None:
    faulty = machine.gpu(gpu)
    if faulty.mig:
        raise ValueError(f"GPU {gpu} is divided (MIG), and NVML does not report its rows")
    if faulty.model.row_remap:
        faulty.answer({"remap.uncorrectable": 1, "remap.pending": 1, "recovery_action": RESET, "remap.banks.high": 1})
        faulty.answer({"remap.banks.all": faulty.model.memory_mib // 128 - 1})
    elif faulty.model.retired_pages:
        faulty.answer({"retired.1": 1, "retired.pending": 1})
    else:
        raise ValueError(f"GPU {gpu} ({faulty.model.name}) neither remaps rows nor retires pages")


FAULT = Fault("row-remap-pending", "a GPU needs a reset to replace a bad row of memory", _apply)
