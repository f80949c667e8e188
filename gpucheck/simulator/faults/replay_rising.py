"""A PCIe link that loses packets: the GPU counts replays, more every second."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

CORRECTABLE_ERRORS = 173  # field
BEFORE_S = 3600
AMPERE = 7  # nvmlDeviceArchitecture_t: the first that counts them by kind


def _apply(machine: Machine, gpu: int, rate: int = 5) -> None:
    """rate: replays a second, for an hour already: a counter that starts now would show nothing yet."""
    faulty = machine.gpu(gpu)
    if rate < 1:
        raise ValueError("rate=0: one or more a second")
    rising = f"{rate * BEFORE_S}+{rate}/s"
    faulty.answer({"pcie.replays": rising})
    if faulty.model.architecture >= AMPERE:
        faulty.answer({f"field.{CORRECTABLE_ERRORS}": rising})


FAULT = Fault("replay-rising", "a GPU's PCIe link replays packets, more every second", _apply)
