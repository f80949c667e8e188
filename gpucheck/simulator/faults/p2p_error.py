"""The driver rejects copies between two GPUs with a CUDA error, although it grants peer access."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.faults.p2p_slow import add, pair_of
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, pair: str, code: int) -> None:
    add(machine, "p2p-error", **pair_of(machine, pair), code=code)


FAULT = Fault(
    name="p2p-error",
    summary="copies between two GPUs end with a CUDA error (217: peer access unsupported)",
    apply=_apply,
    parameters={"pair": str, "code": 217},
)
