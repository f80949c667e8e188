"""The compute mode lets only one process use a GPU, or none."""

from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import Machine

MODES = {"exclusive-process": 3, "prohibited": 2}  # nvmlComputeMode_t


def _apply(machine: Machine, gpu: str = "all", mode: str = "exclusive-process") -> None:
    check_choice("mode", mode, MODES)
    for one in machine.chosen(gpu):
        one.answer({"compute_mode": MODES[mode]})


FAULT = Fault("compute-exclusive", "only one process may use a GPU, or none", _apply)
