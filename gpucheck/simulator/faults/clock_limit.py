"""The application clock was set below its default and never restored."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

APPLICATIONS_CLOCKS_SETTING = 0x2  # nvmlClocksEventReason


def _apply(machine: Machine, mhz: int, gpu: str = "all") -> None:
    for limited in machine.chosen(gpu):
        most = limited.model.clocks_mhz[0]
        if not (limited.model.application_clocks and machine.has_application_clocks):
            driver = machine.profile.driver.version
            raise ValueError(f"{limited.model.name} has no application clocks with driver {driver}")
        if not 0 < mhz < most:
            raise ValueError(f"mhz={mhz}: {limited.model.name} takes less than {most}, its default")
        limited.answer({"application_clock.0": mhz, "application_clock.1": mhz})
        busy = {"clocks_event_reasons": APPLICATIONS_CLOCKS_SETTING, "clock.0": mhz, "clock.1": mhz}
        limited.answer(busy, "load")


FAULT = Fault("clock-limit", "the application clock is below the default", _apply)
