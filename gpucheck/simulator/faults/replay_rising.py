"""A PCIe link that loses packets: the GPU counts replays, more every second."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

CORRECTABLE_ERRORS = 173  # field
AMPERE = 7  # nvmlDeviceArchitecture_t: the first that counts them by kind


def _apply(machine: Machine, gpu: int, rate: int) -> None:
    """rate: replays a second."""
    faulty = machine.gpu(gpu)
    if rate < 1:
        raise ValueError("rate=0: one or more a second")
    faulty.answer({"pcie.replays": f"0+{rate}/s"})
    if faulty.model.architecture >= AMPERE:
        faulty.answer({f"field.{CORRECTABLE_ERRORS}": f"0+{rate}/s"})


FAULT = Fault(
    name="replay-rising",
    summary="a GPU's PCIe link replays packets, more every second",
    apply=_apply,
    parameters={"gpu": int, "rate": 5},
)
