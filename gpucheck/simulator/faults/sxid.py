"""An NVSwitch reported an error in the kernel log."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine
from gpucheck.simulator.xids import sxid_line


def _apply(machine: Machine, code: int, switch: int = 0, age: int = 600) -> None:
    switches = [function for function in machine.functions.values() if function.kind == "nvswitch"]
    if switch >= len(switches):
        numbers = f"switches 0 to {len(switches) - 1}" if switches else "no NVSwitch on its PCI bus"
        raise ValueError(f"there is no switch {switch}; profile {machine.profile.name} has {numbers}")
    machine.log(sxid_line(switch, switches[switch].bus_id, code), age_s=age)


FAULT = Fault("sxid", "the kernel log holds an SXid of an NVSwitch", _apply)
