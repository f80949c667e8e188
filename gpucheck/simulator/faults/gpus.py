"""A GPU that is lost, missing, hidden, in use, or set so that it cannot be used."""

from gpucheck.simulator.faults import check_choice, fault, xid_line
from gpucheck.simulator.machine import Machine, Process

DRIVER_MIB = 1024  # what a driver may keep for itself
MODES = {"exclusive-process": 3, "prohibited": 2}  # nvmlComputeMode_t
HOPPER = 9  # nvmlDeviceArchitecture_t: the first with confidential computing
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
