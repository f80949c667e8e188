"""The driver rejects copies between two GPUs with a CUDA error, although it grants peer access."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.faults.p2p_slow import pair_of
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, pair: str, code: int = 217) -> None:
    machine.surround("measurement", fault="p2p-error", **pair_of(machine, pair), code=code)


FAULT = Fault("p2p-error", "copies between two GPUs end with a CUDA error (217: peer access unsupported)", _apply)
