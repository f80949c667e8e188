"""The fabric gives a GPU less than it could: only the driver's summary shows it, or a bit of the mask does."""

from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import Machine

SUMMARIES = {"unhealthy": 2, "limited": 3}  # NVML_GPU_FABRIC_HEALTH_SUMMARY_*


def _apply(machine: Machine, gpu: int, summary: str = "limited") -> None:
    faulty = machine.gpu(gpu)
    if faulty.model.fabric is None:
        raise ValueError(f"GPU {gpu} ({faulty.model.name}) reports no fabric")
    check_choice("summary", summary, SUMMARIES)
    faulty.answer({"fabric.health_summary": SUMMARIES[summary]})


FAULT = Fault("fabric-limited", "the NVSwitch fabric reports limited capacity, or is unhealthy, for a GPU", _apply)
