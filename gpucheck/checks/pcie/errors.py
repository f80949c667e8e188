"""PCIe errors: do the links of the GPUs and of the bridges above them repeat or lose packets?

Sources: aer_dev_{correctable,nonfatal,fatal} of every function on the path (Linux 4.19 and newer), NVML's replay
counter and error fields of the GPU. Link errors are often counted at the far end of the link. Counters are totals since
boot, so a few are normal and only their rate counts; uncorrected errors have no normal rate.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._case import Case, new_errors
from gpucheck.checks._nvml import lost_gaps, no_gpu_on_the_bus, not_looked, not_reported, quick_check
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Gpu, NvmlFailure, NvmlReading, PciDevice
from gpucheck.model.facts import Facts

NAME, UPTIME = "pcie-errors", "/proc/uptime"
# Corrected errors an hour, above which a link is worth a look. The specification allows a bit error rate of 1e-12,
# which is one every few seconds on a busy Gen4 x16 link; well-wired links stay two orders below that.
PER_HOUR = 60.0
CALLS = (
    "nvmlDeviceGetPcieReplayCounter",
    "nvmlDeviceGetFieldValues",
    *(f"NVML_FI_DEV_PCIE_COUNT_{kind}" for kind in ("CORRECTABLE_ERRORS", "NON_FATAL_ERROR", "FATAL_ERROR")),
)


def up_hours(text: str | None) -> float | None:
    """Return hours since boot, None if unknown. text: of /proc/uptime."""
    words = (text or "").split()
    try:
        return float(words[0]) / 3600 if words else None
    except ValueError:
        return None


def evaluate(facts: Facts) -> Iterator[Finding]:
    """One finding for each function with errors and each GPU without a count, else one for the host."""
    nvml = facts.nvml
    gpus = {gpu.pci_bus_id: gpu for gpu in (nvml.gpus if isinstance(nvml, NvmlReading) else ())}
    on_path = {bus_id for device in facts.pci if device.is_nvidia_gpu for bus_id in (device.bus_id, *device.path)}
    pci = [device for device in facts.pci if device.bus_id in on_path]
    counted = [device for device in pci if device.aer is not None or _counts(gpus.get(device.bus_id))]
    host = Subject(check=NAME, evidence=(f"PCI functions on the paths of the GPUs with counters: {len(counted)}",))
    if not pci:
        yield no_gpu_on_the_bus(NAME)
        return
    if not counted and isinstance(nvml, NvmlFailure):
        yield not_looked(NAME, nvml)
        return
    hours = up_hours(facts.texts[UPTIME])
    found = [finding for device in counted if (finding := _evaluate(device, gpus.get(device.bus_id), hours))]
    if isinstance(nvml, NvmlReading):
        # GPUs that are lost, and those on whose path nothing counts although NVML might.
        by_bus_id = {device.bus_id for device in counted}
        for gpu, device in [(gpus[one.bus_id], one) for one in pci if one.bus_id in gpus]:
            if lost_gaps(nvml, gpu) or not by_bus_id & {device.bus_id, *device.path}:
                found += filter(None, [not_reported(NAME, nvml, gpu, *CALLS, what="PCIe error count")])
    yield from found
    if not counted and not found:
        yield host.skips("pcie.errors-not-counted")
    elif not found:
        yield host.passes(f"no uncorrected PCIe errors, corrected ones below {PER_HOUR:.0f} an hour")


def _counts(gpu: Gpu | None) -> bool:
    return gpu is not None and any(count is not None for count in msgspec.structs.astuple(gpu.health.pcie_errors))


def _evaluate(device: PciDevice, gpu: Gpu | None, hours: float | None) -> Finding | None:
    own = gpu.health.pcie_errors if gpu is not None else None
    aer = device.aer
    fatal = max(aer.fatal if aer else 0, own.fatal or 0 if own else 0)
    non_fatal = max(aer.non_fatal if aer else 0, own.non_fatal or 0 if own else 0)
    corrected = max(aer.correctable if aer else 0, own.correctable or 0 if own else 0)
    replays = own.replays or 0 if own else 0
    recoveries = own.recoveries if own else None
    lines = (
        f"{device.bus_id}: {corrected} corrected, {non_fatal} non-fatal, {fatal} fatal, {replays} replays",
        *((f"link recoveries, changes of speed included (NVML field 169): {recoveries}",) if recoveries else ()),
        f"up for {hours:.1f} h" if hours is not None else "uptime: not readable",
    )
    kind = "gpu" if device.is_nvidia_gpu else "link"
    subject = Subject(check=NAME, name=f"{kind}:{device.bus_id}", evidence=lines)
    if fatal or non_fatal:
        return subject.fails("pcie.packets-lost", f"{fatal} fatal and {non_fatal} non-fatal PCIe errors", 0)
    total = max(corrected, replays)
    if hours is None:
        return subject.unknown("pcie.error-rate-unknown") if total > PER_HOUR else None
    rate = total / max(hours, 1.0)
    if rate > PER_HOUR:
        seen = f"{rate:.0f} corrected PCIe errors an hour"
        return subject.warns("pcie.packets-repeated", seen, f"below {PER_HOUR:.0f} an hour")
    return None


def rule(case: Case) -> Iterator[Finding]:
    """PCIe errors that rose while GPUs copied."""
    return new_errors(case, "links.pcie-errors-new", of_pcie=True)


LIMITS = (f"WARN above {PER_HOUR:.0f} corrected errors an hour since boot; FAIL at one that is not corrected",)
CHECK = quick_check(NAME, "hardware pcie", evaluate, ("nvml", "pci", f"text:{UPTIME}"), limits=LIMITS)
