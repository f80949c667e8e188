"""The power limit was lowered, which limits the clocks under load."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

SW_POWER_CAP = 0x4  # nvmlClocksEventReason


def _apply(machine: Machine, watts: int, gpu: str = "all") -> None:
    for limited in machine.chosen(gpu):
        least, limit = limited.model.power_range_w[0], limited.model.power_limit_w
        if not least <= watts < limit:
            raise ValueError(
                f"watts={watts}: {limited.model.name} takes {least} to {limit - 1}; {limit} is its default"
            )
        limited.answer({"power.limit_mw": watts * 1000, "power.enforced_limit_mw": watts * 1000})
        clock = limited.model.clocks_mhz[0] * watts // limit
        busy = {
            "power.usage_mw": watts * 1000,
            "clocks_event_reasons": SW_POWER_CAP,
            "clock.0": clock,
            "clock.1": clock,
        }
        limited.answer(busy, "load")


FAULT = Fault("power-limit", "the power limit is below the default", _apply)
