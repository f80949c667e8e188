"""Memory errors: uncorrectable ECC errors, rows and pages that wait for a reset, and what the GPU itself requires.

Sources: nvmlDeviceGetTotalEccErrors (volatile = since the driver was loaded, aggregate = over the board's life),
nvmlDeviceGetSramEccErrorStatus (caches and registers, with the driver's threshold), nvmlDeviceGetRemappedRows and
nvmlDeviceGetRowRemapperHistogram (Ampere and newer), nvmlDeviceGetRetiredPages (older; there is room for 64, and DCGM
and Azure's node health checks reject a GPU at 60), nvmlDeviceGetRepairStatus and nvmlDeviceGetUnrepairableMemoryFlag_v1
(drivers 580 and 590), nvmlDeviceValidateInforom, NVML field 230 (recovery action).
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import Nvml, about, gaps_of, not_reported, of_each_gpu, quick_check
from gpucheck.knowledge.causes import of_recovery_action
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Gpu, Health
from gpucheck.model.facts import Facts

NAME = "memory-errors"
ECC, ROWS = "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows"
ACTION = "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"
PAGES = ("nvmlDeviceGetRetiredPagesPendingStatus", "nvmlDeviceGetRetiredPages")
MOST_PAGES = 60
# NVML's recovery actions.
RECOVERY = {
    "reset": "gpu.recovery-reset",
    "reboot": "gpu.recovery-reboot",
    "drain-p2p": "gpu.recovery-drain-p2p",
    "drain-and-reset": "gpu.recovery-reset",
    "recover-imex": "gpu.recovery-imex",
    "bus-reset": "gpu.recovery-bus-reset",
    "system-reboot": "gpu.recovery-reboot",
}

# What a repair that waits for a reset asks for, too.
BY_RESET = ("reset", "drain-and-reset")


@of_each_gpu(NAME, nothing="gpu.no-memory-error-counts")
def evaluate(facts: Facts, gpu: Gpu) -> Finding | None:
    """The worst finding about each GPU that counts its memory errors."""
    subject = about(NAME, gpu, *_evidence(gpu))
    error = _current(subject, gpu.health) or _past(subject, gpu.health)  # whatever else was not reported
    problem = error or _missing(facts.nvml, gpu) or _setting(subject, gpu)
    known = ", ".join(_known(gpu))
    return problem or (subject.passes(known) if known else None)


def _current(subject: Subject, health: Health) -> Finding | None:
    """The worst of what is now; first what no reset repairs."""
    if health.row_remap and health.row_remap.failed:
        return subject.fails("gpu.row-remap-failed", "row remapping failed")
    if health.unrepairable:
        return subject.fails("gpu.memory-unrepairable", "unrepairable memory")
    pages = health.retired_pages
    if pages and (retired := pages.single_bit + pages.double_bit) >= MOST_PAGES:
        return subject.fails("gpu.pages-used-up", f"{retired} retired memory pages", f"below {MOST_PAGES}")
    if health.sram and health.sram.threshold_exceeded:
        return subject.fails("gpu.sram-threshold-exceeded", "SRAM error threshold exceeded")
    if uncorrected := health.ecc_counts.volatile_uncorrected:
        return subject.fails("gpu.memory-uncorrected", _errors(uncorrected, "volatile"), 0)
    if health.sram and (uncorrected := health.sram.volatile_uncorrected):
        return subject.fails("gpu.sram-uncorrected", _errors(uncorrected, "volatile"), 0)
    if health.recovery_action not in (None, "none", *BY_RESET):
        return _recovery(subject, health.recovery_action)
    if health.row_remap and health.row_remap.pending:
        return subject.warns("gpu.row-remap-pending", "row remapping pending")
    if health.repairs_pending:
        return subject.warns("gpu.repair-pending", f"{' and '.join(health.repairs_pending)} repair pending")
    if pages and pages.pending:
        return subject.warns("gpu.page-retirement-pending", "page retirement pending")
    return _recovery(subject, health.recovery_action) if health.recovery_action in BY_RESET else None


def _recovery(subject: Subject, action: str) -> Finding:
    code = RECOVERY.get(action, "gpu.recovery-other")
    return subject.fails(code, f"recovery action {action}", "none", action=of_recovery_action(action))


def _past(subject: Subject, health: Health) -> Finding | None:
    counts, sram = health.ecc_counts, health.sram
    if uncorrected := counts.aggregate_uncorrected or (sram.aggregate_uncorrected if sram else 0):
        code = "gpu.memory-errors-before" if counts.volatile_uncorrected == 0 else "gpu.memory-errors-of-life"
        return subject.warns(code, _errors(uncorrected, "aggregate"), 0)
    if health.spare_rows and health.spare_rows.none:
        banks = health.spare_rows.none
        return subject.warns("gpu.spare-rows-used", f"{banks} memory bank{'s' * (banks > 1)} without spare rows", 0)
    if health.inforom_valid is False:
        return subject.warns("gpu.inforom-corrupted", "infoROM corrupted")
    return None


def _missing(nvml: Nvml, gpu: Gpu) -> Finding | None:
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


def _setting(subject: Subject, gpu: Gpu) -> Finding | None:
    """ECC that changes at the next reset, which changes the memory size and what is counted."""
    on, pending = gpu.health.ecc, gpu.health.ecc_pending
    if on is None or pending is None or on == pending:
        return None
    seen = f"ECC change pending (now {_word(on)}, {_word(pending)} after reset)"
    return subject.warns("gpu.ecc-mode-pending", seen)


def _errors(count: int, which: str) -> str:
    return f"{count} uncorrectable ECC error{'' if count == 1 else 's'} ({which})"


def _evidence(gpu: Gpu) -> Iterator[str]:
    health, counts = gpu.health, gpu.health.ecc_counts
    yield f"recovery action: {health.recovery_action or 'not reported'}"
    yield f"ECC mode: current {_word(health.ecc)}, pending {_word(health.ecc_pending)}"
    yield (
        f"ECC errors: volatile {_count(counts.volatile_corrected)} corrected, "
        f"{_count(counts.volatile_uncorrected)} uncorrected; aggregate {_count(counts.aggregate_corrected)} corrected, "
        f"{_count(counts.aggregate_uncorrected)} uncorrected"
    )
    if health.row_remap:
        row = health.row_remap
        state = f"{_yes('pending', row.pending)}, {_yes('failed', row.failed)}"
        yield f"remapped rows: {row.corrected} corrected, {row.uncorrected} uncorrected, {state}"
    if health.spare_rows:
        rows = health.spare_rows
        left = f"{rows.every} all, {rows.most} most, {rows.some} some, {rows.few} few, {rows.none} none"
        yield f"banks by spare rows left: {left}"
    if sram := health.sram:
        now = f"{sram.volatile_corrected} corrected, {sram.volatile_parity} parity, {sram.volatile_sec_ded} SEC-DED"
        ever = f"{sram.aggregate_corrected} corrected, {sram.aggregate_parity} parity, {sram.aggregate_sec_ded} SEC-DED"
        exceeded = _yes("exceeded", sram.threshold_exceeded)
        yield f"SRAM errors: volatile {now}; aggregate {ever}; threshold {exceeded}"
    if health.retired_pages:
        page = health.retired_pages
        state = _yes("pending", page.pending)
        yield f"retired pages: {page.single_bit} single-bit, {page.double_bit} double-bit, {state}"


def _count(count: int | None) -> str:
    return "(not reported)" if count is None else str(count)


def _word(on: bool | None) -> str:
    return "not reported" if on is None else "on" if on else "off"


def _yes(what: str, state: bool) -> str:
    return what if state else f"not {what}"


CHECK = quick_check(NAME, "hardware memory", evaluate, ("nvml",), limits=(f"FAIL at {MOST_PAGES} retired pages",))
