"""What the GPUs of a machine can compute, and what is wrong with it: compute.json of its directory."""

from gpucheck.compute.engines.simulated import ComputeGpu
from gpucheck.host.nvml.health import named_reasons
from gpucheck.simulator.machine import Machine, SimulatedGpu

SW_POWER_CAP = ("sw-power-cap",)
SLOWDOWN_C = 83.0  # of models without a published limit


def gpus_that_compute(machine: Machine) -> tuple[ComputeGpu, ...]:
    return tuple(_gpu(gpu) for gpu in machine.gpus if gpu.visible and not gpu.function.lost)


def slowdown_c(gpu: SimulatedGpu) -> float:
    """The temperature from which the driver lowers the clock."""
    limits = gpu.model.thermal
    return float(limits.operating or limits.slowdown or SLOWDOWN_C)


def _gpu(gpu: SimulatedGpu) -> ComputeGpu:
    mask = gpu.nvml.get("clocks_event_reasons.load")
    held_by = (named_reasons(int(mask, 0)) if mask is not None else None) or ()
    held = gpu.nvml.get("clock.1.load")
    if held_by == SW_POWER_CAP:  # the governor itself keeps to the limit
        held, held_by = None, ()
    limit = gpu.nvml.get("power.limit_mw")
    clock, memory = gpu.model.clocks_mhz
    return ComputeGpu(
        name=gpu.model.name,
        bus_id=gpu.function.bus_id,
        capability=gpu.model.compute_capability,
        clock_mhz=float(clock),
        power_limit_w=int(limit) / 1000 if limit is not None else float(gpu.model.power_limit_w),
        power_default_w=float(gpu.model.power_limit_w),
        slowdown_c=slowdown_c(gpu),
        memory_limit_c=float(gpu.model.thermal.memory) if gpu.model.thermal.memory else None,
        multiprocessors=gpu.model.multiprocessors,
        memory_bus_bits=gpu.model.memory_bus_bits,
        memory_clock_mhz=float(memory),
        held_mhz=float(held) if held is not None else None,
        held_by=held_by,
        **gpu.compute,  # type: ignore[arg-type]  # by the names of its fields
    )
