"""Too hot: the hardware, or the driver before it, holds the clocks down."""

from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import Machine

# nvmlClocksEventReason, and the field that counts the nanoseconds of it
REASONS = {"hardware": 0x8 | 0x40, "software": 0x20}
NANOSECONDS = {"hardware": 270, "software": 269}
THERMAL = 1  # nvmlPerfPolicyType_t
ADA = 8  # nvmlDeviceArchitecture_t: the first that reports how far it is from the limit
RISING = "0+1000000000/s"


def _apply(machine: Machine, gpu: str = "all", by: str = "hardware", when: str = "always") -> None:
    check_choice("by", by, REASONS)
    for hot in machine.chosen(gpu):
        limits = hot.model.thermal
        limit = limits.slowdown if by == "hardware" else limits.operating or limits.slowdown
        clock = hot.model.clocks_mhz[0] // (4 if by == "hardware" else 2)
        hot.answer({"clocks_event_reasons": hex(REASONS[by]), "clock.0": clock, "clock.1": clock}, when)
        hot.answer({f"violation.{THERMAL}": RISING, f"field.{NANOSECONDS[by]}": f"{RISING}ull"}, when)
        if limit is not None:
            hot.answer({"temperature.0": limit + 1}, when)
        if limit is not None and hot.model.architecture >= ADA:
            hot.answer({"temperature.margin": (limits.operating or limit) - (limit + 1)}, when)


FAULT = Fault("throttle-thermal", "a GPU is too hot and its clocks are held down", _apply)
