"""What holds the clocks of a GPU or of the CPUs down."""

from gpucheck.compute.engines.simulated import AIR_C, HEALTHY_RISE_C
from gpucheck.simulator.compute import slowdown_c
from gpucheck.simulator.faults import check_choice, fault
from gpucheck.simulator.machine import Machine, SimulatedGpu

APPLICATIONS_CLOCKS_SETTING, SW_POWER_CAP = 0x2, 0x4  # nvmlClocksEventReason
# Degrees above its limit that the GPU would reach at full power.
ABOVE_C = {"paste": 12.0, "fan": 60.0}
# nvmlClocksEventReason, and the field that counts the nanoseconds of it
HELD = {"hardware": (0x8 | 0x40, 270), "software": (0x20, 269), "power-brake": (0x8 | 0x80, 271)}
THERMAL = 1  # nvmlPerfPolicyType_t
ADA = 8  # nvmlDeviceArchitecture_t: the first that reports how far it is from the limit
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
    hot.compute["rise"] = (slowdown_c(hot) + ABOVE_C[by] - AIR_C) / HEALTHY_RISE_C


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
