"""The firmware left BAR 1 small: resizable BAR or addresses above 4 GB are switched off."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

SMALL_MIB, MIB = 256, 1 << 20


def _apply(machine: Machine, gpu: str = "all") -> None:
    for one in machine.chosen(gpu):
        if not one.function.rebar:
            raise ValueError(f"BAR 1 of the {one.model.name} at {one.function.bus_id} has one size only")
        one.function.bar1_mib = SMALL_MIB
        one.answer({"bar1.total": SMALL_MIB * MIB})


FAULT = Fault("rebar-off", "a GPU's BAR 1 is 256 MiB, or that of all of them: resizable BAR is off", _apply)
