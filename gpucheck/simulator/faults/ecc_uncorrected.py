"""Memory that ECC could not correct: since the driver was loaded, or in the life of the GPU."""

from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import Machine

# nvmlEccCounterType_t, nvmlMemoryLocation_t
VOLATILE, AGGREGATE = 0, 1
PLACES = {"dram": 2, "sram": 7}
TURING = 6  # nvmlDeviceArchitecture_t: the first that reports SRAM as one


def _apply(machine: Machine, gpu: int, counter: str = "volatile", where: str = "dram", count: int = 1) -> None:
    """counter: a volatile error is counted in the aggregate too, an aggregate one may be of long ago."""
    faulty = machine.gpu(gpu)
    if not (faulty.model.ecc and faulty.model.ecc_enabled):
        raise ValueError(f"GPU {gpu} ({faulty.model.name}) has no ECC, or it is off")
    check_choice("counter", counter, ("volatile", "aggregate"))
    if where not in PLACES or (where == "sram" and faulty.model.architecture < TURING):
        raise ValueError(f"where={where}: dram, or from Turing on sram")
    if count < 1:
        raise ValueError("count=0: one or more")
    for span in (VOLATILE, AGGREGATE) if counter == "volatile" else (AGGREGATE,):
        faulty.answer({f"ecc.errors.1.{span}": count, f"ecc.location.1.{span}.{PLACES[where]}": count})


FAULT = Fault("ecc-uncorrected", "uncorrected ECC errors in a GPU's memory", _apply)
