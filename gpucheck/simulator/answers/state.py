"""How a GPU is: an idle, healthy one, and what of it is different under load (``<key>.load``)."""

from collections.abc import Iterator

from gpucheck.simulator.machine import Machine, SimulatedGpu

# nvmlDeviceArchitecture_t
VOLTA, TURING, AMPERE, ADA, HOPPER = 5, 6, 7, 8, 9
DEPRECATED = "!26"
IDLE = 0x1  # nvmlClocksEventReason
ALL_REASONS = 0x1FF
XID, PSTATE, CLOCK, SINGLE_BIT, DOUBLE_BIT = 0x8, 0x4, 0x10, 0x1, 0x2  # nvmlEventType
# nvmlTemperatureThresholds_t
SHUTDOWN, SLOWDOWN, MEMORY, OPERATING = range(4)
CELSIUS, CELSIUS_BUSY = 34, 62
PCIE_ERROR_FIELDS, L0_TO_RECOVERY = range(173, 184), 169
# nvmlMemoryLocation_t
L1, L2, DRAM, REGISTERS, TEXTURE, TEXTURE_SHARED, CBU, SRAM = range(8)
THROTTLED_FIELDS = range(269, 272)  # nanoseconds: software thermal, hardware thermal, power brake
VIOLATIONS = range(5)  # nvmlPerfPolicyType_t: power, thermal, sync boost, board limit, low utilization


def state(machine: Machine, gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    yield from (("persistence", int(machine.persistence)), ("compute_mode", 0), ("performance_state", 0))
    yield from (("display_mode", int(gpu.model.display)), ("display_active", 0))
    yield from (("clocks_event_reasons", IDLE), ("clocks_event_reasons.load", 0))
    yield "supported_clocks_event_reasons", ALL_REASONS
    yield from ((f"violation.{policy}", 0) for policy in VIOLATIONS)
    yield from ((f"field.{field}", "0ull") for field in THROTTLED_FIELDS)
    yield "event_types", XID | PSTATE | CLOCK | (SINGLE_BIT | DOUBLE_BIT if gpu.model.ecc else 0)
    if gpu.model.architecture >= AMPERE:
        yield "recovery_action", 0
    yield from _utilization(machine, gpu)
    yield from _heat(gpu)
    yield from _power(gpu)
    yield from _pcie_errors(gpu)
    yield from _ecc(gpu)
    yield from _repairs(gpu)
    if gpu.model.architecture >= TURING:
        yield from (("gsp.enabled", 1), ("gsp.default", 1), ("gsp.version", machine.profile.driver.version))
    if gpu.model.mig:
        yield from (("mig.current", int(bool(gpu.mig))), ("mig.pending", int(bool(gpu.mig))))


def _utilization(machine: Machine, gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    sm, memory = gpu.model.clocks_mhz
    for domain, mhz in enumerate((sm, sm, memory, sm)):  # graphics, SM, memory, video
        yield from ((f"clock.{domain}", mhz), (f"max_clock.{domain}", mhz))
        # The default of some real products is below their maximum; here it is the maximum.
        if not machine.has_application_clocks:
            yield from ((f"{which}application_clock.{domain}", DEPRECATED) for which in ("", "default_"))
        elif gpu.model.application_clocks:
            yield from ((f"{which}application_clock.{domain}", mhz) for which in ("", "default_"))
    if gpu.mig:
        return  # NVML does not report it for a GPU that is divided
    yield from ((f"utilization.{what}", 0) for what in ("gpu", "memory", "encoder", "decoder"))
    yield from (("utilization.gpu.load", 100), ("utilization.memory.load", 60), ("utilization.sampling_us", 100_000))


def _heat(gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    limits = gpu.model.thermal
    yield from (("temperature.0", CELSIUS), ("temperature.0.load", CELSIUS_BUSY))
    known = {SHUTDOWN: limits.shutdown, SLOWDOWN: limits.slowdown, MEMORY: limits.memory, OPERATING: limits.operating}
    yield from ((f"threshold.{which}", celsius) for which, celsius in known.items() if celsius is not None)
    if limits.memory is not None:
        yield from (("temperature.memory", CELSIUS + 4), ("temperature.memory.load", CELSIUS_BUSY + 8))
    if gpu.model.architecture >= ADA and limits.slowdown is not None:
        operating = limits.operating or limits.slowdown
        yield "temperature.margin", operating - CELSIUS
        yield "temperature.margin.load", operating - CELSIUS_BUSY
        yield "temperature.slowdown_margin", operating - limits.slowdown
    if gpu.model.fan:
        yield from (("fan_speed", 30), ("fan_speed.load", 55), ("fans", 1))


def _power(gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    """Milliwatts. From Volta on the driver also counts the energy, which is what the power makes of the time."""
    limit = gpu.model.power_limit_w * 1000
    least, most = (watts * 1000 for watts in gpu.model.power_range_w)
    yield from (("power.usage_mw", limit // 10), ("power.usage_mw.load", limit * 8 // 10), ("power.managed", 1))
    yield from ((f"power.{which}_mw", limit) for which in ("limit", "default_limit", "enforced_limit"))
    yield from (("power.min_limit_mw", least), ("power.max_limit_mw", most))
    if gpu.model.architecture >= VOLTA:
        yield "energy_mj", f"3600000+{limit // 10}/s"


def _pcie_errors(gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    yield from (
        ("pcie.replays", 0),
        ("pcie.rollovers", 0),
        ("pcie.throughput_kb_s.0", 0),
        ("pcie.throughput_kb_s.1", 0),
    )
    if gpu.model.architecture >= AMPERE:
        yield from ((f"field.{field}", 0) for field in (L0_TO_RECOVERY, *PCIE_ERROR_FIELDS))


def _ecc(gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    """Counters are reported only while ECC is on. Turing and newer count caches and registers together, as SRAM."""
    if not gpu.model.ecc:
        return
    enabled = int(gpu.model.ecc_enabled)
    yield from (("ecc.current", enabled), ("ecc.pending", enabled), ("ecc.default", enabled))
    older = (L1, L2, DRAM, REGISTERS) if gpu.model.architecture == VOLTA else (L2, DRAM, REGISTERS, TEXTURE_SHARED)
    places = (DRAM, SRAM) if gpu.model.architecture >= TURING else older
    if enabled and gpu.model.architecture >= AMPERE:
        counts = (f"{span}.{kind}" for span in ("volatile", "aggregate") for kind in ("corrected", "parity", "sec_ded"))
        yield from ((f"sram.{count}", 0) for count in (*counts, "exceeded"))
    for kind in (0, 1) if enabled else ():
        for span in (0, 1):
            yield f"ecc.errors.{kind}.{span}", 0
            yield from ((f"ecc.location.{kind}.{span}.{place}", 0) for place in places)


def _repairs(gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    """Rows are not reported while the GPU is divided."""
    if gpu.model.retired_pages:
        yield from ((f"retired.{what}", 0) for what in ("0", "1", "pending"))
    if gpu.model.row_remap and not gpu.mig:
        yield from ((f"remap.{what}", 0) for what in ("correctable", "uncorrectable", "pending", "failed"))
        yield "remap.banks.all", gpu.model.memory_mib // 128
        yield from ((f"remap.banks.{left}", 0) for left in ("high", "partial", "low", "none"))
    if gpu.model.architecture >= HOPPER:
        yield from (("repair.channel_pending", 0), ("repair.tpc_pending", 0))
