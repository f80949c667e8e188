"""The compute mode lets only one process use a GPU, or none."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

MODES = {"exclusive-process": 3, "prohibited": 2}  # nvmlComputeMode_t


def _apply(machine: Machine, gpu: str, mode: str) -> None:
    if mode not in MODES:
        raise ValueError(f"mode={mode}: choose one of {', '.join(MODES)}")
    for one in machine.chosen(gpu):
        one.answer({"compute_mode": MODES[mode]})


FAULT = Fault(
    name="compute-exclusive",
    summary="only one process may use a GPU, or none",
    apply=_apply,
    parameters={"gpu": "all", "mode": "exclusive-process"},
)
