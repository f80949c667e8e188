"""One link of the NVLink-C2C between a GPU and its Grace CPU is down, or counts errors."""

from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import Machine

STATUS, SPEED = 171, 172
COUNTERS = {"interrupt": 231, "replay": 232, "replay-in-a-row": 233}


def _apply(machine: Machine, gpu: int, link: int = 0, kind: str = "down", count: int = 500) -> None:
    """count: errors so far."""
    faulty = machine.gpu(gpu)
    if not faulty.model.coherent:
        raise ValueError(f"gpu={gpu}: a {faulty.model.name} has no NVLink-C2C")
    check_choice("kind", kind, ("down", *COUNTERS))
    if kind == "down":
        faulty.answer({f"field.{STATUS}.{link}": 0, f"field.{SPEED}.{link}": 0})
    else:
        faulty.answer({f"field.{COUNTERS[kind]}.{link}": count})


FAULT = Fault("c2c-link", "a link between a GPU and its Grace CPU is down or counts errors", _apply)
