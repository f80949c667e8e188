"""Memory errors: uncorrectable ECC errors, rows and pages that wait for a reset, and what the GPU itself requires.

Sources: nvmlDeviceGetTotalEccErrors (volatile = since the driver was loaded, aggregate = over the board's life),
nvmlDeviceGetSramEccErrorStatus (caches and registers, with the driver's threshold), nvmlDeviceGetRemappedRows and
nvmlDeviceGetRowRemapperHistogram (Ampere and newer), nvmlDeviceGetRetiredPages (older), NVML field 230 (recovery
action).
"""

from collections.abc import Iterator

from msgspec.structs import replace

from gpucheck.checks._nvml import evaluate_each_gpu, gaps_of, not_reported, query_nvml
from gpucheck.knowledge.actions import of_recovery_action
from gpucheck.model import Check, Finding, Gpu, Health, NvmlFailure, NvmlReading, SramErrors
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
    return _worn(about, gpu.health) or _current(about, gpu) or _past(about, gpu.health)


def _worn(about: About, health: Health) -> Finding | None:
    """What no reset repairs."""
    if health.row_remap and health.row_remap.failed:
        seen, cause = "row remapping failed", "row-remap"
        why = "A bad memory row could not be replaced: the spare rows of its bank are used up."
    elif health.sram and health.sram.threshold_exceeded:
        seen, cause = "SRAM error threshold exceeded", "sram-threshold"
        why = "The driver counts so many errors in the caches and registers that the board needs service."
    else:
        return None
    failed = about.fails(seen, None, why, "take the GPU out of service and replace it", cause)
    return replace(failed, action="replace", owner="site")


def _current(about: About, gpu: Gpu) -> Finding | None:
    health, reset = gpu.health, RESET.format(gpu.pci_bus_id)
    sram = health.sram.volatile_uncorrected if health.sram else 0
    if uncorrected := health.ecc_counts.volatile_uncorrected or sram:
        where = "The memory" if health.ecc_counts.volatile_uncorrected else "A cache or a register"
        why = f"{where} returned data that could not be corrected since the driver was loaded."
        fix = f"{reset}; if it happens again, replace the board"
        return about.fails(_errors(uncorrected, "volatile"), 0, why, fix, "ecc-uncorrected")
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
    return None


def _past(about: About, health: Health) -> Finding | None:
    """What may come again."""
    counts, sram = health.ecc_counts, health.sram
    if uncorrected := counts.aggregate_uncorrected or (sram.aggregate_uncorrected if sram else 0):
        since = "; none since the driver was loaded" if counts.volatile_uncorrected == 0 else ""
        why = f"The board had uncorrectable memory errors over its life{since}."
        seen = _errors(uncorrected, "aggregate")
        return replace(about.warns(seen, 0, why, WATCH, "ecc-uncorrected", "possible"), action="none")
    if health.spare_rows and health.spare_rows.none:
        banks = health.spare_rows.none
        why = "The next bad row in such a bank cannot be replaced, and the GPU then needs service."
        seen = f"{banks} memory bank{'s' * (banks > 1)} without spare rows"
        return replace(about.warns(seen, 0, why, WATCH, "row-remap", "likely"), action="none")
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
    if health.sram and not health.sram.threshold_exceeded:
        yield "SRAM errors below the threshold"
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
    if health.spare_rows:
        rows = health.spare_rows
        left = f"{rows.every} all, {rows.most} most, {rows.some} some, {rows.few} few, {rows.none} none"
        yield f"banks by spare rows left (nvmlDeviceGetRowRemapperHistogram): {left}"
    if health.sram:
        yield _sram(health.sram)
    if health.retired_pages:
        page = health.retired_pages
        yield f"{PAGES[1]}: {page.single_bit} single-bit, {page.double_bit} double-bit, {_yes('pending', page.pending)}"


def _sram(sram: SramErrors) -> str:
    """The counters since the driver was loaded and over the life of the board."""
    now = f"{sram.volatile_corrected} corrected, {sram.volatile_parity} parity, {sram.volatile_sec_ded} SEC-DED"
    ever = f"{sram.aggregate_corrected} corrected, {sram.aggregate_parity} parity, {sram.aggregate_sec_ded} SEC-DED"
    exceeded = _yes("exceeded", sram.threshold_exceeded)
    return f"nvmlDeviceGetSramEccErrorStatus: volatile {now}; aggregate {ever}; threshold {exceeded}"


def _count(count: int | None) -> str:
    return "(not reported)" if count is None else str(count)


def _word(on: bool | None) -> str:
    return "not reported" if on is None else "on" if on else "off"


def _yes(what: str, state: bool) -> str:
    return what if state else f"not {what}"


CHECK = Check(NAME, frozenset({"hardware", "memory", "quick"}), query_nvml, evaluate)
