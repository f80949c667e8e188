"""A bad cable or connector: one end of an NVLink counts errors, more every second."""

from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import Machine

# nvmlNvLinkErrorCounter_t up to NVLink 4; fields from NVLink 5 on: recovery events, effective and symbol errors
COUNTERS = {"replay": "0", "recovery": "1", "crc": "2"}
FIELDS = {"recovery": 215, "crc": 219, "replay": 221}
BEFORE_S = 3600
NVLINK_5 = 7  # NVML's version enum


def _apply(machine: Machine, gpu: int, link: int = 0, kind: str = "crc", rate: int = 10) -> None:
    """rate: errors a second, for an hour already: a counter that starts now would show nothing yet."""
    machine.active_link(gpu, link)
    faulty = machine.gpu(gpu)
    check_choice("kind", kind, COUNTERS)
    since = rate * BEFORE_S
    if faulty.model.nvlink and faulty.model.nvlink.version >= NVLINK_5:
        faulty.answer({f"field.{FIELDS[kind]}.{link}": f"{since}+{rate}/sull"})
    else:
        faulty.answer({f"nvlink.{link}.errors.{COUNTERS[kind]}": f"{since}+{rate}/s"})


FAULT = Fault("nvlink-errors", "an NVLink counts errors, more every second", _apply)
