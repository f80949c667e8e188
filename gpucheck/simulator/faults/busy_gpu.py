"""Another process computes on a GPU."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine, Process

DRIVER_MIB = 1024  # what a driver may keep for itself


def _apply(machine: Machine, gpu: int, memory: int = 8192, pid: int = 1, name: str = "python3") -> None:
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


FAULT = Fault("busy-gpu", "another process computes on a GPU", _apply)
