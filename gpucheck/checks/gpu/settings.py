"""Settings of each GPU that slow it down or keep programs out, and what uses it now."""

from collections.abc import Iterator

from msgspec.structs import replace

from gpucheck.checks._case import UNDER_LOAD, Case, observed
from gpucheck.checks._nvml import Reads, gaps_of, gpu_check, not_reported, quick_check, with_gpus
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Gpu, GpuProcess, Health, NvmlReading
from gpucheck.model.facts import Facts

CLOCKS = ("nvmlDeviceGetApplicationsClock", "nvmlDeviceGetDefaultApplicationsClock")
LIMITS = ("nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetPowerManagementDefaultLimit")
# The second name is that of drivers before 535.
REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
PROCESSES = tuple(
    f"nvmlDeviceGet{kind}RunningProcesses{version}"
    for kind in ("Compute", "Graphics")
    for version in ("", "_v2", "_v1")
)
# NVML reports milliwatts; a limit within a watt of the default is the default.
TOLERANCE_W = 1.0
MARGIN_C = 5
HARDWARE = {
    "hw-power-brake": "gpu.power-brake",
    "hw-thermal": "gpu.hardware-thermal-slowdown",
    "hw-slowdown": "gpu.hardware-slowdown",
}
MPS_SERVER = "nvidia-cuda-mps-server"
SHOWN = 8
KEPT_PART = 0.25  # of the memory: the driver reserves less, also in virtual GPUs
CONFIDENTIAL = "confidential-computing"


def clock_limit(facts: Facts, gpu: Gpu, subject: Subject) -> Finding | None:
    """Clock limit: are the application clocks of every GPU at the factory default?

    Sources: nvmlDeviceGetApplicationsClock against nvmlDeviceGetDefaultApplicationsClock, graphics. The default may be
    below the product's maximum, which is therefore no reference. Clocks locked with nvidia-smi -lgc cannot be read
    back: they show as a low clock under load, with the throttle reasons.
    """
    clock, default = gpu.health.application_clock_mhz, gpu.health.default_application_clock_mhz
    if clock is None or default is None:
        # GeForce boards and newer drivers have neither clock; a recording may have no failed call either.
        queried = clock is not default or any(gaps_of(facts.nvml, gpu, *CLOCKS))
        return not_reported(subject.check, facts.nvml, gpu, *CLOCKS, what="application clock") if queried else None
    most = f"{gpu.health.max_sm_clock_mhz} MHz" if gpu.health.max_sm_clock_mhz else "not reported"
    subject = subject.with_evidence(f"application clock {clock} MHz, default {default} MHz, maximum {most}")
    if clock <= 0 or default <= 0:
        return subject.unknown("gpu.clock-unknown", clock_mhz=clock, default_mhz=default)
    if clock >= default:
        return subject.passes(clock)
    return subject.warns("gpu.clock-limited", clock, default, percent=round(100 * clock / default))


def compute_mode(_: Facts, gpu: Gpu, subject: Subject) -> Finding:
    """Compute mode: may several processes use a GPU?

    Source: nvmlDeviceGetComputeMode. Exclusive modes break programs that open a GPU from two processes (CUDA 46 or
    101); prohibited admits no process.
    """
    mode = str(gpu.health.compute_mode)
    subject = subject.with_evidence(f"compute mode: {mode}")
    if mode == "default":
        return subject.passes("compute mode default")
    if mode == "prohibited":
        return subject.fails("gpu.compute-mode-prohibited", "compute mode prohibited", "default")
    if mode.startswith("exclusive"):
        return subject.warns("gpu.compute-mode-exclusive", f"compute mode {mode}", "default")
    return subject.unknown("gpu.compute-mode-unknown", mode=mode)


def mig(_: Facts, gpu: Gpu, subject: Subject) -> Finding:
    """MIG: is a GPU divided into instances, or about to be?

    Source: nvmlDeviceGetMigMode. Instances have no peer-to-peer access, so multi-GPU training cannot use them: a
    warning, because it may be intentional. So is a mode that waits for a reset.
    """
    on, pending = gpu.health.mig, gpu.health.mig_pending
    now, later = ({True: "on", False: "off", None: "not reported"}[state] for state in (on, pending))
    subject = subject.with_evidence(f"MIG mode: current {now}, pending {later}")
    if pending is not None and pending != on:
        return subject.warns("gpu.mig-pending", f"MIG change pending (now {now}, {later} after reset)")
    if on:
        return subject.warns("gpu.mig-enabled", "MIG enabled", "disabled")
    return subject.passes("MIG disabled")


def persistence(_: Facts, gpu: Gpu, subject: Subject) -> Finding:
    """Persistence: does the driver keep the GPUs initialized while no process uses them?

    Source: nvmlDeviceGetPersistenceMode. Without it the first client of every job initializes each GPU again (1 to 3
    seconds a GPU, NVIDIA's driver persistence page), and settings such as power limits are lost in between.
    """
    if gpu.health.persistence:
        return subject.passes("persistence mode on")
    return subject.warns("gpu.persistence-off", "persistence mode off", "on")


def power_limit(_: Facts, gpu: Gpu, subject: Subject) -> Finding:
    """Power limit: is the power limit of every GPU at the factory default?

    Sources: nvmlDeviceGetPowerManagementLimit against nvmlDeviceGetPowerManagementDefaultLimit, and the enforced one
    (nvmlDeviceGetEnforcedPowerLimit), which a BMC may set too. One limited GPU makes every rank of a job wait.
    """
    limit, default = gpu.health.power_limit_w or 0.0, gpu.health.power_default_w or 0.0
    least, most = gpu.health.power_min_w, gpu.health.power_max_w
    allowed = "allowed range not reported" if None in (least, most) else f"allowed {least:g} to {most:g} W"
    enforced = gpu.health.power_enforced_w
    lowest = "enforced limit not reported" if enforced is None else f"enforced {enforced:g} W"
    subject = subject.with_evidence(f"limit {limit:g} W, default {default:g} W, {lowest}, {allowed}")
    if limit <= 0 or default <= 0:
        return subject.unknown("gpu.power-limit-unknown", limit_w=limit, default_w=default)
    if enforced and enforced < min(limit, default) - TOLERANCE_W:
        percent = round(100 * enforced / default)
        return subject.warns("gpu.power-capped", enforced, default, percent=percent, limit_w=limit)
    if limit >= default - TOLERANCE_W:
        return subject.passes(limit)
    percent = round(100 * limit / default)
    return subject.warns("gpu.power-limit-lowered", limit, default, percent=percent, default_w=default)


def vgpu_license(_: Facts, gpu: Gpu, subject: Subject) -> Finding | None:
    """vGPU license: does a virtual GPU have the license without which the driver slows it down?

    Sources: nvmlDeviceGetVirtualizationMode, nvmlDeviceGetGridLicensableFeatures. Without a license the driver lowers
    the clocks of a virtual GPU some time after boot, at first after 20 minutes (NVIDIA vGPU licensing guide).
    """
    if gpu.health.licensed is None:
        return None
    if gpu.health.licensed:
        return subject.passes("licensed")
    return subject.warns("gpu.vgpu-unlicensed", "not licensed", "licensed")


def processes(facts: Facts, gpu: Gpu, subject: Subject) -> Finding:
    """Processes: does a process use the GPUs now?

    Source: nvmlDeviceGetComputeRunningProcesses. A busy GPU invalidates every timing, and on a node that should be idle
    it is left over from an earlier job. Inside a container NVML lists the processes of the container's PID namespace
    only.
    """
    users = [process for process in gpu.health.processes or () if process.kind == "compute"]
    lines, health = [*map(_line, users[:SHOWN])], gpu.health
    # What shows that a GPU is in use although no process is listed.
    if health.memory_used_bytes is not None:
        lines.append(f"GPU memory in use: {health.memory_used_bytes >> 20} MiB")
    if health.gpu_utilization_percent is not None:
        lines.append(f"GPU utilization: {health.gpu_utilization_percent} %")
    subject = subject.with_evidence(*lines)
    if users and all((user.name or "").endswith(MPS_SERVER) for user in users):
        return subject.warns("gpu.mps-server-running", len(users), 0)
    if users:
        return subject.warns("gpu.processes-running", len(users), 0)
    if container := facts.system.container:
        return subject.skips("gpu.processes-of-the-container", 0, container=container)
    # A process that hangs while it ends is in no list. Linux uses the memory of a GPU with ATS (Grace Hopper) itself.
    others = health.addressing_mode == "ats" or health.mig or (health.virtualization or "").startswith("host-")
    used = health.memory_used_bytes or 0
    if not health.processes and not others and gpu.memory_bytes and used > KEPT_PART * gpu.memory_bytes:
        seen = f"{used >> 20} MiB in use by no listed process"
        return replace(subject, unit=None).warns("gpu.memory-kept", seen, "0 MiB")
    return subject.passes(0)


def _line(process: GpuProcess) -> str:
    used = "memory not reported" if process.memory_bytes is None else f"{process.memory_bytes >> 20} MiB"
    return f"process {process.pid} {process.name or '(name not reported)'}: {used}"


def throttle(_: Facts, gpu: Gpu, subject: Subject) -> Finding:
    """Throttling: does heat, a power brake or the board itself lower the clocks of a GPU?

    Source: nvmlDeviceGetCurrentClocksEventReasons. The software power cap is normal under full load, idle and
    application clocks are settings; hardware slowdown, hardware thermal slowdown and the power brake are not.
    """
    health, reasons = gpu.health, gpu.health.clocks_event_reasons or ()
    names, margin = ", ".join(reasons) or "none", health.temperature_margin_c
    subject, seen = subject.with_evidence(*_clocks(health, names)), f"clock event reasons {names}"
    for reason, code in HARDWARE.items():
        if reason in reasons:
            return subject.fails(code, seen, "no hardware slowdown")
    if "sw-thermal" in reasons:
        return subject.warns("gpu.software-thermal-slowdown", seen, "no thermal slowdown")
    if margin is not None and margin <= MARGIN_C:
        hot = "" if health.temperature_c is None else f"{health.temperature_c} C, "
        seen, wanted = f"{hot}{max(margin, 0)} C below slowdown", f"more than {MARGIN_C} C below slowdown"
        return subject.warns("gpu.near-slowdown-temperature", seen, wanted)
    return subject.passes(seen)


def _clocks(health: Health, reasons: str) -> Iterator[str]:
    margin = health.temperature_margin_c
    known = {
        f"core temperature {health.temperature_c} C": health.temperature_c,
        f"hardware slowdown at {health.temperature_slowdown_c} C": health.temperature_slowdown_c,
        f"{margin} C left": margin is not None,
        f"SM clock {health.sm_clock_mhz} MHz": health.sm_clock_mhz,
        f"maximum {health.max_sm_clock_mhz} MHz": health.max_sm_clock_mhz,
    }
    yield f"clock event reasons: {reasons}"
    if numbers := ", ".join(text for text, value in known.items() if value):
        yield numbers


def throttled_copying(case: Case) -> Iterator[Finding]:
    """GPUs that the hardware slowed down while they copied."""
    for row in case.machine.measured.under_load:
        if words := ", ".join(sorted({*(row.throttled or ())} & HARDWARE.keys())):
            subject = observed(UNDER_LOAD, case.machine.gpu_label(row.gpu), f"clock event reasons: {words}")
            yield subject.warns("links.throttled-copying", f"throttled while copying: {words}")


@with_gpus(CONFIDENTIAL)
def confidential(_: Facts, nvml: NvmlReading) -> Iterator[Finding]:
    """Confidential computing: where it is on, do the GPUs accept work?

    Sources: nvmlSystemGetConfComputeState and nvmlSystemGetConfComputeGpusReadyState. After each boot of a confidential
    virtual machine the GPUs reject work until they were attested and set to ready (NVIDIA Confidential Computing
    deployment guide); CUDA then fails with 802 (system not ready), as it does without an NVSwitch fabric.
    """
    state, subject = nvml.confidential, Subject(check=CONFIDENTIAL)
    if state is None:
        yield subject.skips("gpu.confidential-computing-not-reported")
    elif not state.enabled:
        yield subject.skips("gpu.confidential-computing-off")
    elif state.ready is None:
        yield subject.unknown("gpu.confidential-readiness-unknown")
    elif state.ready:
        yield subject.passes("confidential computing on, GPUs ready")
    else:
        yield subject.fails("gpu.confidential-not-ready", "GPUs not ready", "ready")


MODE = Reads(("compute_mode",), ("nvmlDeviceGetComputeMode",), "compute mode")
DIVIDED = Reads(("mig",), ("nvmlDeviceGetMigMode",), "MIG mode")
KEPT = Reads(("persistence",), ("nvmlDeviceGetPersistenceMode",), "persistence mode")
POWER = Reads(("power_limit_w", "power_default_w"), LIMITS, "power limit")
LOWERED = (f"WARN more than {TOLERANCE_W:g} W below the default",)
KEEPERS = (f"WARN above {KEPT_PART:.0%} of the memory in use by no listed process",)
USERS = Reads(("processes",), PROCESSES, "GPU processes")
CAUSES = Reads(("clocks_event_reasons",), REASONS, "clock event reasons")
HOT = (f"WARN at {MARGIN_C} C or less below the hardware's own limit",)
CHECKS = (
    gpu_check("clock-limit", "hardware settings", clock_limit, "gpu.no-application-clocks", unit="MHz"),
    gpu_check("compute-mode", "software settings", compute_mode, "gpu.no-compute-modes", MODE),
    gpu_check("mig", "software settings", mig, "gpu.no-mig", DIVIDED),
    gpu_check("persistence", "software settings", persistence, "gpu.no-persistence-mode", KEPT),
    gpu_check("power-limit", "hardware settings", power_limit, "gpu.no-power-limit", POWER, unit="W", limits=LOWERED),
    gpu_check(
        "processes",
        "software",
        processes,
        "gpu.no-process-list",
        USERS,
        unit="processes",
        needs=("system",),
        limits=KEEPERS,
    ),
    gpu_check("throttle", "hardware", throttle, "gpu.no-clock-event-reasons", CAUSES, limits=HOT),
    gpu_check("vgpu-license", "software", vgpu_license, "gpu.no-licensed-vgpu"),
    quick_check(CONFIDENTIAL, "software", confidential, ("nvml",)),
)
