"""Another process computes on a GPU."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine, Process

DRIVER_MIB = 1024  # what a driver may keep for itself


def _apply(machine: Machine, gpu: int, memory: int, pid: int, name: str) -> None:
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


FAULT = Fault(
    name="busy-gpu",
    summary="another process computes on a GPU",
    apply=_apply,
    parameters={"gpu": int, "memory": 8192, "pid": 1, "name": "python3"},
)
