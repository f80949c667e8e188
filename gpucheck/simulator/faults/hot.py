"""A GPU that cools badly: healthy while it is idle, throttled after seconds of load."""

from gpucheck.compute.engines.simulated import AIR_C, HEALTHY_RISE_C
from gpucheck.simulator.compute import slowdown_c
from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import Machine

# Degrees above its limit that the GPU would reach at full power.
ABOVE_C = {"paste": 12.0, "fan": 60.0}


def _apply(machine: Machine, gpu: int, by: str = "paste") -> None:
    check_choice("by", by, ABOVE_C)
    hot = machine.gpu(gpu)
    hot.compute["rise"] = (slowdown_c(hot) + ABOVE_C[by] - AIR_C) / HEALTHY_RISE_C


FAULT = Fault("hot", "a GPU has poor cooling (paste or fan) and is throttled under load", _apply)
