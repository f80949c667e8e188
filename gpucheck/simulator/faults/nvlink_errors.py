"""A bad cable or connector: one end of an NVLink counts errors, more every second."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

# nvmlNvLinkErrorCounter_t up to NVLink 4; fields from NVLink 5 on: recovery events, effective and symbol errors
COUNTERS = {"replay": "0", "recovery": "1", "crc": "2"}
FIELDS = {"recovery": 215, "crc": 219, "replay": 221}
BEFORE_S = 3600
NVLINK_5 = 7  # NVML's version enum


def _apply(machine: Machine, gpu: int, link: int, kind: str, rate: int) -> None:
    """rate: errors a second, for an hour already: a counter that starts now would show nothing yet."""
    faulty = machine.gpu(gpu)
    ports = faulty.model.nvlink
    if ports is None:
        raise ValueError(f"GPU {gpu} ({faulty.model.name}) has no NVLink")
    if link >= len(faulty.links) or not faulty.links[link].active:
        active = [number for number, one in enumerate(faulty.links) if one.active]
        raise ValueError(f"link={link}: the active links of GPU {gpu} are {active}")
    if kind not in COUNTERS:
        raise ValueError(f"kind={kind}: choose one of {', '.join(COUNTERS)}")
    since = rate * BEFORE_S
    if ports.version >= NVLINK_5:
        faulty.answer({f"field.{FIELDS[kind]}.{link}": f"{since}+{rate}/sull"})
    else:
        faulty.answer({f"nvlink.{link}.errors.{COUNTERS[kind]}": f"{since}+{rate}/s"})


FAULT = Fault(
    name="nvlink-errors",
    summary="an NVLink counts errors, more every second",
    apply=_apply,
    parameters={"gpu": int, "link": 0, "kind": "crc", "rate": 10},
)
