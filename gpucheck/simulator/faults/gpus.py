"""GPUs: lost, missing, in use, with damaged memory, or with clocks that something holds down."""

from gpucheck.compute.engines.simulated import AIR_C, HEALTHY_RISE_C
from gpucheck.simulator.faults import check_choice, fault, xid_line
from gpucheck.simulator.machine import Machine, Process, SimulatedGpu
from gpucheck.simulator.machine.profile import ADA, AMPERE, HOPPER, TURING

DRIVER_MIB = 1024  # what a driver may keep for itself
MODES = {"exclusive-process": 3, "prohibited": 2}  # nvmlComputeMode_t
GPU_IS_LOST = 15
VGPU = 2  # nvmlGpuVirtualizationMode_t
APART_S = 30


@fault("another process computes on a GPU")
def busy_gpu(machine: Machine, gpu: int, memory: int = 8192, pid: int = 1, name: str = "python3") -> None:
    """memory: MiB. pid: 1, which every host has, so that clients find it."""
    busy = machine.gpu(gpu)
    whole = busy.model.mig_slices[busy.mig[0]].memory_mib if busy.mig else busy.model.memory_mib
    free = whole - DRIVER_MIB - sum(process.memory_mib for process in busy.processes)
    if memory > free:
        raise ValueError(f"memory={memory}: GPU {gpu} has {free} MiB to give")
    if pid < 1:
        raise ValueError("pid=0: process ids begin with 1")
    busy.processes.append(Process(pid=pid, memory_mib=memory, name=name))
    if not busy.mig:
        busy.answer({"utilization.gpu": 97, "utilization.memory": 40})
    busy.answer({"clocks_event_reasons": 0, "power.usage_mw": busy.model.power_limit_w * 800, "temperature.0": 62})


@fault("only one process may use a GPU, or none")
def compute_exclusive(machine: Machine, gpu: str = "all", mode: str = "exclusive-process") -> None:
    check_choice("mode", mode, MODES)
    for one in machine.chosen(gpu):
        one.answer({"compute_mode": MODES[mode]})


@fault("confidential computing is on and the GPUs are not ready")
def confidential_not_ready(machine: Machine, ready: int = 0) -> None:
    """A confidential virtual machine whose GPUs were not set to ready after its start: CUDA cannot start.

    ready: 1 for a healthy one.
    """
    if not any(gpu.model.architecture >= HOPPER for gpu in machine.gpus):
        raise ValueError(f"no GPU of profile {machine.profile.name} has confidential computing")
    machine.nvml |= {"confidential.environment": "1", "confidential.feature": "1", "confidential.ready": str(ready)}


@fault("a device cgroup hides a GPU from this process")
def gpu_hidden(machine: Machine, gpu: int) -> None:
    """A device cgroup hides a GPU from this process, as in a step of Slurm that was given others: NVML omits it too."""
    machine.require_driver()
    machine.gpu(gpu).visible = False
    machine.gpu(gpu).open_error = "EPERM"


@fault("a GPU fell off the bus (NVML 15)")
def gpu_lost(machine: Machine, gpu: int) -> None:
    """A GPU fell off the bus: NVML still counts it and answers GPU_IS_LOST (15) to every question about it.

    Its configuration space reads as ones and its link as unknown, as of any device that no longer answers.
    """
    lost = machine.gpu(gpu)
    lost.nvml["error"] = str(GPU_IS_LOST)
    lost.function.lost = True
    lost.open_error = "EIO"
    machine.log(xid_line(lost.function.bus_id, 79), age_s=600)
    machine.log(f"NVRM: GPU {lost.function.bus_id}: GPU has fallen off the bus.", age_s=600)


@fault("a GPU is on the PCI bus but NVML does not count it")
def gpu_missing(machine: Machine, gpu: int) -> None:
    machine.gpu(gpu).visible = False
    machine.gpu(gpu).open_error = "EIO"
    bus_id = machine.gpu(gpu).function.bus_id
    machine.log(f"NVRM: GPU {bus_id}: RmInitAdapter failed! (0x62:0x55:2860)", age_s=3600)
    machine.log(f"NVRM: GPU {bus_id}: rm_init_adapter failed, device minor number {gpu}", age_s=3600)


@fault("MIG mode was switched and awaits a reset")
def mig_pending(machine: Machine, gpu: int) -> None:
    switched = machine.gpu(gpu)
    if not switched.model.mig:
        raise ValueError(f"GPU {gpu} ({switched.model.name}) has no MIG")
    switched.answer({"mig.pending": int(not switched.mig)})


@fault("the GPUs are virtual ones without a license")
def vgpu_unlicensed(machine: Machine, licensed: int = 0) -> None:
    """licensed: 1 for healthy ones."""
    for gpu in machine.gpus:
        gpu.answer({"virtualization": VGPU, "license.supported": 1, "license.state": licensed})


@fault("the kernel log holds an Xid of a GPU")
def xid(machine: Machine, gpu: int, code: int, age: int = 600, count: int = 1) -> None:
    """count times, the last one age seconds ago."""
    line = xid_line(machine.gpu(gpu).function.bus_id, code)
    if count < 1:
        raise ValueError(f"count={count}: at least once")
    for number in range(count):
        machine.log(line, age_s=age + number * APART_S)


# nvmlEccCounterType_t, nvmlMemoryLocation_t
VOLATILE, AGGREGATE = 0, 1
PLACES = {"dram": 2, "sram": 7}
SPARES = 8  # of a bank
RESET = 1  # nvmlDeviceGpuRecoveryAction_t


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
    machine.gpu(gpu).answer({"remap.uncorrectable": SPARES, "remap.failed": 1})
    spare_rows_used.apply(machine, gpu)


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


APPLICATIONS_CLOCKS_SETTING, SW_POWER_CAP = 0x2, 0x4  # nvmlClocksEventReason
# Degrees above its limit that the GPU would reach at full power.
ABOVE_C = {"paste": 12.0, "fan": 60.0}
# nvmlClocksEventReason, and the field that counts the nanoseconds of it
HELD = {"hardware": (0x8 | 0x40, 270), "software": (0x20, 269), "power-brake": (0x8 | 0x80, 271)}
THERMAL = 1  # nvmlPerfPolicyType_t
RISING = "0+1000000000/s"


@fault("the application clock is below the default")
def clock_limit(machine: Machine, mhz: int, gpu: str = "all") -> None:
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


@fault("the CPU frequency governor is powersave")
def governor_powersave(machine: Machine) -> None:
    if machine.profile.virtual:
        raise ValueError(f"profile {machine.profile.name} is a virtual machine, and sets no CPU clocks")
    machine.governor = "powersave"


@fault("a GPU has poor cooling (paste or fan) and is throttled under load")
def hot(machine: Machine, gpu: int, by: str = "paste") -> None:
    check_choice("by", by, ABOVE_C)
    hot = machine.gpu(gpu)
    hot.compute["rise"] = (hot.slowdown_c + ABOVE_C[by] - AIR_C) / HEALTHY_RISE_C


@fault("persistence mode is off")
def persistence_off(machine: Machine, gpu: str = "all") -> None:
    """Persistence mode is off: with the last client the driver lets go of the GPU, and the next one waits for it."""
    for one in machine.chosen(gpu):
        one.answer({"persistence": 0})


@fault("the power limit is below the default")
def power_limit(machine: Machine, watts: int, gpu: str = "all") -> None:
    for limited in machine.chosen(gpu):
        least, limit = limited.model.power_range_w[0], limited.model.power_limit_w
        if not least <= watts < limit:
            raise ValueError(f"watts={watts}: choose {least} to {limit - 1}; {limit} is the default")
        limited.answer({"power.limit_mw": watts * 1000, "power.enforced_limit_mw": watts * 1000})
        clock = limited.model.clocks_mhz[0] * watts // limit
        limited.answer({"power.usage_mw": watts * 1000}, "load")
        limited.answer({"clocks_event_reasons": SW_POWER_CAP, "clock.0": clock, "clock.1": clock}, "load")


def _hold(gpu: SimulatedGpu, by: str, divisor: int, when: str) -> None:
    reasons, nanoseconds = HELD[by]
    clock = gpu.model.clocks_mhz[0] // divisor
    gpu.answer({"clocks_event_reasons": hex(reasons), "clock.0": clock, "clock.1": clock}, when)
    gpu.answer({f"field.{nanoseconds}": f"{RISING}ull"}, when)


@fault("the power supply signals a GPU to hold its clocks down")
def throttle_power_brake(machine: Machine, gpu: str = "all", when: str = "always") -> None:
    for braked in machine.chosen(gpu):
        _hold(braked, "power-brake", 4, when)


@fault("a GPU is too hot and its clocks are held down")
def throttle_thermal(machine: Machine, gpu: str = "all", by: str = "hardware", when: str = "always") -> None:
    check_choice("by", by, ("hardware", "software"))
    for hot in machine.chosen(gpu):
        limits = hot.model.thermal
        limit = limits.slowdown if by == "hardware" else limits.operating or limits.slowdown
        _hold(hot, by, 4 if by == "hardware" else 2, when)
        hot.answer({f"violation.{THERMAL}": RISING}, when)
        if limit is not None:
            hot.answer({"temperature.0": limit + 1}, when)
        if limit is not None and hot.model.architecture >= ADA:
            hot.answer({"temperature.margin": (limits.operating or limit) - (limit + 1)}, when)
