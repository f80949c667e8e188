"""Memory errors: uncorrectable ECC errors, rows and pages that wait for a reset, and what the GPU itself asks for.

Sources: nvmlDeviceGetTotalEccErrors (volatile = since the driver was loaded, aggregate = over the board's life),
nvmlDeviceGetRemappedRows (Ampere and newer), nvmlDeviceGetRetiredPages (older), NVML field 230 (recovery action).
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import each_gpu, not_reported
from gpucheck.model import Check, Finding, Gpu, Host, NvmlFailure, NvmlReading
from gpucheck.model.about import About

NAME = "memory-errors"
CALLS = ("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetRetiredPages")
DRAIN = "drain the GPU, then: nvidia-smi --gpu-reset -i {}"
# NVML's recovery actions and what a person does about each.
RECOVERY = {
    "reset": "drain the GPU, then: nvidia-smi --gpu-reset -i {}",
    "reboot": "drain the host and reboot it",
    "drain-p2p": "let no new peer-to-peer work start on {}, end the running jobs, then reset it",
    "drain-and-reset": "drain {} and reset it",
    "recover-imex": "recover the IMEX domain of this host, then check again",
    "bus-reset": "drain the GPU and reset its PCI slot, or reboot the host",
    "system-reboot": "drain the host and reboot it",
}


def probe(host: Host) -> NvmlReading | NvmlFailure:
    """Ask NVML."""
    return host.nvml()


def evaluate(nvml: NvmlReading | NvmlFailure) -> Iterator[Finding]:
    """The worst thing about each GPU that keeps count of its memory errors."""
    nothing = "no GPU of this host counts memory errors: it has no ECC, no row remapping and no page retirement"
    yield from each_gpu(NAME, nvml, lambda gpu: _judge(nvml, gpu), nothing=nothing)


def _judge(nvml: NvmlReading | NvmlFailure, gpu: Gpu) -> Finding | None:
    health, counts = gpu.health, gpu.health.ecc_counts
    told = (counts.volatile_uncorrected, counts.aggregate_uncorrected, health.row_remap, health.retired_pages)
    if health.recovery_action in (None, "none") and all(value is None for value in told):
        return not_reported(NAME, nvml, gpu, *CALLS)
    about, reset = _about(gpu), DRAIN.format(gpu.pci_bus_id)
    if health.row_remap and health.row_remap.failed:
        why = "a bad row could not be replaced: the spare rows of its bank are used up"
        return about.fails(
            "row remap failed", "no failure", why, "take the GPU out of service, replace it", "row-remap"
        )
    if counts.volatile_uncorrected:
        why = "the memory returned data that could not be corrected; the job that used it was killed"
        fix = f"{reset}; if it happens again, replace the board"
        return about.fails(counts.volatile_uncorrected, 0, why, fix, "ecc-uncorrected")
    if health.row_remap and health.row_remap.pending:
        why = "a bad row is to be replaced by a spare one, which happens at the next reset of the GPU"
        return about.warns("row remap pending", "none pending", why, reset, "row-remap")
    if health.retired_pages and health.retired_pages.pending:
        why = "a bad page is to be retired, which happens when the driver is loaded the next time"
        return about.warns("page retirement pending", "none pending", why, reset, "row-remap")
    if health.recovery_action not in (None, "none"):
        return _asked_for(gpu)
    if counts.aggregate_uncorrected:
        why = "the board had uncorrectable errors in the past; none since the driver was loaded"
        fix = "watch it: gpucheck verify --only memory-errors --baseline REPORT; replace the board if the count rises"
        return about.warns(counts.aggregate_uncorrected, 0, why, fix, "ecc-uncorrected", "possible")
    return about.passes("no uncorrectable error, nothing pending")


def _asked_for(gpu: Gpu) -> Finding:
    action = gpu.health.recovery_action or ""
    fix = RECOVERY.get(action, "follow the recovery action {}").format(gpu.pci_bus_id)
    why = "the GPU itself reports that it needs this before it can be trusted again"
    return _about(gpu).fails(f"recovery action {action}", "none", why, fix, "gpu-reset-required")


def _about(gpu: Gpu) -> About:
    health, counts = gpu.health, gpu.health.ecc_counts
    evidence = [
        f"NVML recovery action: {health.recovery_action}",
        f"ECC {'on' if health.ecc else 'off'}; volatile {counts.volatile_corrected} corrected, "
        f"{counts.volatile_uncorrected} uncorrected; aggregate {counts.aggregate_corrected}, "
        f"{counts.aggregate_uncorrected}",
    ]
    if health.row_remap:
        row = health.row_remap
        evidence.append(
            f"nvmlDeviceGetRemappedRows: {row.corrected} corrected, {row.uncorrected} uncorrected, "
            f"pending {row.pending}, failed {row.failed}"
        )
    if health.retired_pages:
        page = health.retired_pages
        evidence.append(
            f"nvmlDeviceGetRetiredPages: {page.single_bit} single-bit, {page.double_bit} double-bit, "
            f"pending {page.pending}"
        )
    return About(check=NAME, subject=f"gpu:{gpu.pci_bus_id}", evidence=tuple(evidence))


CHECK = Check(NAME, frozenset({"hardware", "memory", "quick"}), probe, evaluate)
