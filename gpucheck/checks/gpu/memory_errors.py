"""Memory errors: uncorrectable ECC errors, rows and pages that wait for a reset, and what the GPU itself requires.

Sources: nvmlDeviceGetTotalEccErrors (volatile = since the driver was loaded, aggregate = over the board's life),
nvmlDeviceGetRemappedRows (Ampere and newer), nvmlDeviceGetRetiredPages (older), NVML field 230 (recovery action).
"""

from collections.abc import Iterator

from msgspec.structs import replace

from gpucheck.checks._nvml import evaluate_each_gpu, gaps_of, not_reported, query_nvml
from gpucheck.knowledge.actions import of_recovery_action
from gpucheck.model import Check, Finding, Gpu, NvmlFailure, NvmlReading
from gpucheck.model.finding.about import About

NAME = "memory-errors"
ECC, ROWS = "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows"
ACTION = "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"
PAGES = ("nvmlDeviceGetRetiredPagesPendingStatus", "nvmlDeviceGetRetiredPages")
RESET = "drain the GPU, then: nvidia-smi --gpu-reset -i {}"
# NVML's recovery actions and the steps for each.
RECOVERY = {
    "reset": RESET,
    "reboot": "drain the host and reboot it",
    "drain-p2p": "start no new peer-to-peer work on {}, end the running jobs, then reset it",
    "drain-and-reset": RESET,
    "recover-imex": "recover the IMEX domain of this host, then: gpucheck verify --only memory-errors",
    "bus-reset": "drain the GPU and reset its PCI slot, or reboot the host",
    "system-reboot": "drain the host and reboot it",
}
WATCH = "compare later: gpucheck verify --only memory-errors --baseline REPORT; replace the board if the count rises"


@evaluate_each_gpu(NAME, nothing="no GPU of this host counts memory errors (no ECC, row remapping or page retirement)")
def evaluate(nvml: NvmlReading | NvmlFailure, gpu: Gpu) -> Finding | None:
    """The worst finding about each GPU that counts its memory errors."""
    about = About(check=NAME, subject=f"gpu:{gpu.pci_bus_id}", evidence=tuple(_evidence(gpu)))
    problem = _error(about, gpu) or _missing(nvml, gpu) or _setting(about, gpu)
    known = ", ".join(_known(gpu))
    return problem or (about.passes(known) if known else None)


def _error(about: About, gpu: Gpu) -> Finding | None:
    """The worst error that was reported, whatever else was not."""
    health, counts, reset = gpu.health, gpu.health.ecc_counts, RESET.format(gpu.pci_bus_id)
    if health.row_remap and health.row_remap.failed:
        why = "A bad memory row could not be replaced: the spare rows of its bank are used up."
        fix = "take the GPU out of service and replace it"
        failed = about.fails("row remapping failed", None, why, fix, "row-remap")
        return replace(failed, action="replace", owner="site")
    if counts.volatile_uncorrected:
        why = "The memory returned data that could not be corrected since the driver was loaded."
        fix = f"{reset}; if it happens again, replace the board"
        return about.fails(_errors(counts.volatile_uncorrected, "volatile"), 0, why, fix, "ecc-uncorrected")
    if health.row_remap and health.row_remap.pending:
        why = "A bad memory row is replaced by a spare one at the next reset of the GPU."
        return about.warns("row remapping pending", None, why, reset, "row-remap")
    if health.retired_pages and health.retired_pages.pending:
        why = "A bad memory page is retired when the driver is loaded the next time."
        return about.warns("page retirement pending", None, why, reset, "row-remap")
    if health.recovery_action not in (None, "none"):
        fix = RECOVERY.get(health.recovery_action, "carry out the recovery action of {}").format(gpu.pci_bus_id)
        why = "The GPU requires a recovery action before further use."
        required = about.fails(f"recovery action {health.recovery_action}", "none", why, fix, "gpu-reset-required")
        return replace(required, action=of_recovery_action(health.recovery_action))
    if counts.aggregate_uncorrected:
        since = "; none since the driver was loaded" if counts.volatile_uncorrected == 0 else ""
        why = f"The board had uncorrectable memory errors over its life{since}."
        seen = _errors(counts.aggregate_uncorrected, "aggregate")
        return replace(about.warns(seen, 0, why, WATCH, "ecc-uncorrected", "possible"), action="none")
    return None


def _missing(nvml: NvmlReading | NvmlFailure, gpu: Gpu) -> Finding | None:
    """Return what to report if a source that this GPU may have could not be read."""
    health, counts = gpu.health, gpu.health.ecc_counts
    counted = None not in (counts.volatile_uncorrected, counts.aggregate_uncorrected)
    sources = (
        ("ECC error count", counted, (ECC,)),
        ("row remapping state", health.row_remap is not None, (ROWS,)),
        ("page retirement state", health.retired_pages is not None, PAGES),
        ("recovery action", health.recovery_action is not None, (ACTION,)),
    )
    for what, is_known, calls in sources:
        gaps = () if is_known else gaps_of(nvml, gpu, *calls)
        if any(not gap.absent for gap in gaps):
            return not_reported(NAME, nvml, gpu, *calls, what=what)
    if any(is_known for _, is_known, _ in sources[:-1]):
        return None
    return not_reported(NAME, nvml, gpu, ECC, ROWS, *PAGES, what="memory error state")


def _known(gpu: Gpu) -> Iterator[str]:
    """What was reported and shows no error: only this is a pass."""
    health, counts = gpu.health, gpu.health.ecc_counts
    if counts.volatile_uncorrected == 0:
        yield "0 uncorrectable ECC errors"
    if health.row_remap:
        yield "no row remapping pending"
    if health.retired_pages:
        yield "no page retirement pending"


def _setting(about: About, gpu: Gpu) -> Finding | None:
    """ECC that changes at the next reset, which changes the memory size and what is counted."""
    on, pending = gpu.health.ecc, gpu.health.ecc_pending
    if on is None or pending is None or on == pending:
        return None
    seen = f"ECC change pending (now {_word(on)}, {_word(pending)} after reset)"
    why = "The ECC mode was changed and takes effect at the next reset of the GPU."
    return replace(about.warns(seen, None, why, RESET.format(gpu.pci_bus_id), None), action="reset-gpu")


def _errors(count: int, which: str) -> str:
    return f"{count} uncorrectable ECC error{'' if count == 1 else 's'} ({which})"


def _evidence(gpu: Gpu) -> Iterator[str]:
    health, counts = gpu.health, gpu.health.ecc_counts
    yield f"NVML recovery action: {health.recovery_action or 'not reported'}"
    yield f"ECC mode: current {_word(health.ecc)}, pending {_word(health.ecc_pending)}"
    yield (
        f"{ECC}: volatile {_count(counts.volatile_corrected)} corrected, "
        f"{_count(counts.volatile_uncorrected)} uncorrected; aggregate {_count(counts.aggregate_corrected)} corrected, "
        f"{_count(counts.aggregate_uncorrected)} uncorrected"
    )
    if health.row_remap:
        row = health.row_remap
        state = f"{_yes('pending', row.pending)}, {_yes('failed', row.failed)}"
        yield f"{ROWS}: {row.corrected} corrected, {row.uncorrected} uncorrected, {state}"
    if health.retired_pages:
        page = health.retired_pages
        yield f"{PAGES[1]}: {page.single_bit} single-bit, {page.double_bit} double-bit, {_yes('pending', page.pending)}"


def _count(count: int | None) -> str:
    return "(not reported)" if count is None else str(count)


def _word(on: bool | None) -> str:
    return "not reported" if on is None else "on" if on else "off"


def _yes(what: str, state: bool) -> str:
    return what if state else f"not {what}"


CHECK = Check(NAME, frozenset({"hardware", "memory", "quick"}), query_nvml, evaluate)
