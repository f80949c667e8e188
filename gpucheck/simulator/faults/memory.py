"""Errors of the memory and the caches of a GPU, and what the driver did about them."""

from gpucheck.simulator.faults import check_choice, fault
from gpucheck.simulator.machine import Machine

# nvmlEccCounterType_t, nvmlMemoryLocation_t
VOLATILE, AGGREGATE = 0, 1
PLACES = {"dram": 2, "sram": 7}
TURING = 6  # nvmlDeviceArchitecture_t: the first that reports SRAM as one
SPARES = 8  # of a bank
RESET = 1  # nvmlDeviceGpuRecoveryAction_t
AMPERE = 7  # nvmlDeviceArchitecture_t: the first that reports them


@fault("uncorrected ECC errors in a GPU's memory")
def ecc_uncorrected(machine: Machine, gpu: int, counter: str = "volatile", where: str = "dram", count: int = 1) -> None:
    """Memory that ECC could not correct: since the driver was loaded, or in the life of the GPU.

    counter: a volatile error is counted in the aggregate too, an aggregate one may be of long ago.
    """
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


@fault("a GPU has no spare left for a bad row of memory")
def row_remap_failed(machine: Machine, gpu: int) -> None:
    faulty = machine.gpu(gpu)
    if not faulty.model.row_remap or faulty.mig:
        raise ValueError(f"NVML reports no remapped rows of GPU {gpu} ({faulty.model.name})")
    faulty.answer({"remap.uncorrectable": SPARES, "remap.failed": 1, "remap.banks.none": 1})
    faulty.answer({"remap.banks.all": faulty.model.memory_mib // 128 - 1})


@fault("a GPU needs a reset to replace a bad row of memory")
def row_remap_pending(machine: Machine, gpu: int) -> None:
    """A row of memory was replaced and the GPU needs a reset to use the spare; before Ampere, a page to be retired."""
    faulty = machine.gpu(gpu)
    if faulty.mig:
        raise ValueError(f"GPU {gpu} is divided (MIG), and NVML does not report its rows")
    if faulty.model.row_remap:
        faulty.answer({"remap.uncorrectable": 1, "remap.pending": 1, "recovery_action": RESET, "remap.banks.high": 1})
        faulty.answer({"remap.banks.all": faulty.model.memory_mib // 128 - 1})
    elif faulty.model.retired_pages:
        faulty.answer({"retired.1": 1, "retired.pending": 1})
    else:
        raise ValueError(f"GPU {gpu} ({faulty.model.name}) neither remaps rows nor retires pages")


@fault("banks of a GPU's memory have no spare row left")
def spare_rows_used(machine: Machine, gpu: int, banks: int = 1) -> None:
    faulty = machine.gpu(gpu)
    if not faulty.model.row_remap or faulty.mig:
        raise ValueError(f"NVML reports no remapped rows of GPU {gpu} ({faulty.model.name})")
    faulty.answer({"remap.banks.none": banks, "remap.banks.all": faulty.model.memory_mib // 128 - banks})


@fault("ECC errors in the caches and registers of a GPU")
def sram_errors(machine: Machine, gpu: int, kind: str = "sec_ded", count: int = 1, threshold: int = 0) -> None:
    """kind: parity, sec_ded or corrected. threshold: 1 where the driver reports that there were too many."""
    faulty = machine.gpu(gpu)
    if not (faulty.model.ecc and faulty.model.ecc_enabled and faulty.model.architecture >= AMPERE):
        raise ValueError(f"GPU {gpu} ({faulty.model.name}) counts no errors of its SRAM")
    check_choice("kind", kind, ("parity", "sec_ded", "corrected"))
    faulty.answer({f"sram.volatile.{kind}": count, f"sram.aggregate.{kind}": count, "sram.exceeded": min(threshold, 1)})
