"""The machine's power supply pulls the brake: an external signal holds the clocks down."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

REASONS = 0x8 | 0x80  # nvmlClocksEventReason: hardware slowdown, power brake
NANOSECONDS = 271  # the field that counts the time of it


def _apply(machine: Machine, gpu: str = "all", when: str = "always") -> None:
    for braked in machine.chosen(gpu):
        clock = braked.model.clocks_mhz[0] // 4
        braked.answer({"clocks_event_reasons": hex(REASONS), "clock.0": clock, "clock.1": clock}, when)
        braked.answer({f"field.{NANOSECONDS}": "0+1000000000/sull"}, when)


FAULT = Fault("throttle-power-brake", "the power supply signals a GPU to hold its clocks down", _apply)
