"""Copies by their data and their end: bytes that were compared, hangs, and failures by code or with their process."""

from collections.abc import Iterator

from gpucheck.checks._case import Case, listed, observed
from gpucheck.checks._machine import Machine, nvlink_of
from gpucheck.diagnose.suspects import Suspect, bad_pairs, cause_of, hang_of, suspects
from gpucheck.knowledge.codes import Subject
from gpucheck.model.diagnosis.observations import CopyFailure
from gpucheck.model.finding import Confidence, Finding, Verdict
from gpucheck.printable import bytes_text

CHECK, COPIES = "p2p-integrity", "p2p-copies"


def rule(case: Case) -> Iterator[Finding]:
    m = case.machine
    yield from _wrong(m)
    yield from _at_source(m)
    yield from _right(m)


def _wrong(m: Machine) -> Iterator[Finding]:
    bad = bad_pairs(m)
    elements = sum(row.wrong or 0 for row in m.measured.collectives)
    if not bad and not elements:
        return
    kinds = sorted({str(kind) for kind in (m.measured.damage, *(row.damage for row in m.measured.damaged)) if kind})
    pairs = bad or list(m.pairs)
    over_nvlink = bool(bad) and all(map(m.links, bad))
    found = suspects(m, "flipped-bits" if kinds == ["bit-flip"] or over_nvlink else "wrong-data", pairs)
    if over_nvlink or not found:
        found = [Suspect("data-corruption", over_nvlink)]
    where = f"wrong data on {len(bad)} of {len(m.pairs)} pairs" if bad else f"{elements} wrong elements in collectives"
    name = m.subject(pairs) if len(pairs) < max(len(m.pairs), 2) or m.count == 2 else "host"
    lines = (line for row in m.measured.damaged for line in row.evidence)
    values = {"damage": kinds or None, "suspect": found[0].cause, **cause_of(found)}
    subject = observed(CHECK, name, f"pairs: {listed(pairs)}", *lines)
    yield subject.fails("data.received-wrong", where, "what was sent", **values)


def _at_source(m: Machine) -> Iterator[Finding]:
    """GPUs whose own memory changed what they then sent."""
    rows = [row for row in m.measured.damaged if row.at_source]
    for gpu in sorted({pair[0] for row in rows for pair in row.pairs}):
        mine = [row for row in rows if any(pair[0] == gpu for pair in row.pairs)]
        subject = observed(CHECK, m.gpu_label(gpu), *(line for row in mine for line in row.evidence))
        seen = f"GPU {gpu}: its memory changed data before it was sent"
        yield subject.fails("data.changed-at-source", seen, "what was written")


def _right(m: Machine) -> Iterator[Finding]:
    distrusted = sorted({pair for row in m.measured.damaged if row.host_only for pair in row.pairs})
    if distrusted:
        seen = f"GPU {listed(distrusted)}: wrong on the host, right on the GPU"
        subject = observed(CHECK, m.subject(sorted({(min(p), max(p)) for p in distrusted})))
        yield subject.fails("data.comparison-wrong", seen)
    elif any(row.at_source for row in m.measured.damaged) or m.measured.bytes_compared == 0 or bad_pairs(m):
        return
    elif m.measured.bytes_compared:
        yield Subject(check=CHECK).passes(f"{bytes_text(m.measured.bytes_compared)} compared, no wrong word")
    elif m.measured.integrity_bad_pairs == () and not m.measured.damage:
        yield Subject(check=CHECK).passes("every byte that was compared was right")


# Copies and collectives that never returned.


def hang_rule(case: Case) -> Iterator[Finding]:
    """One finding. Causes that were found before come first, but of other GPUs: wrong data, lost links of the path."""
    m = case.machine
    hang = hang_of(m)
    if hang is None:
        return
    others = {m.label(i) for i in range(m.count) if hang.gpus and i not in hang.gpus}
    near = (one for one in case.findings if not others.issuperset(one.subject.partition(":")[2].split("-")))
    known = list(dict.fromkeys(one.cause for one in near if one.cause and one.verdict is Verdict.FAIL))
    pattern = "hang-of-one-gpu" if len(hang.gpus) == 1 else "hang-with-p2p-off" if hang.with_p2p_off else "hang"
    found = [*known, *(one.cause for one in suspects(m, pattern, list(m.pairs)) if one.cause not in known)]
    stuck = next((failure for failure in m.measured.failures if failure.kind == "stuck"), None)
    what = hang.op or "a copy"
    if stuck:
        what = f"copy {', '.join(f'GPU {a} -> {b}' for a, b in stuck.pairs[:4]) or stuck.step}"
    name = m.subject([(hang.gpus[0], hang.gpus[1])]) if len(hang.gpus) == 2 else "host"
    off = {None: (), True: ("hangs with P2P off too",), False: ("returns with P2P off",)}[hang.with_p2p_off]
    subject = observed(COPIES, m.gpu_label(hang.gpus[0]) if len(hang.gpus) == 1 else name, *off)
    seen = f"{what} hung" + (f" ({stuck.detail})" if stuck and stuck.detail else "")
    named = cause_of([Suspect(cause, False) for cause in found])
    yield subject.fails("data.copy-hung", seen, "completion", suspect=found[0], **named)


# Copies that ended without a result: by the code that CUDA returned, or with their process.
# cudaError_t -> cause. 217 names peer access only where the driver granted it. Source: CUDA runtime API, cudaError_t.
CODES: dict[int, tuple[str, Confidence]] = {
    214: ("ecc-uncorrected", "certain"), 217: ("false-p2p-grant", "likely"), 220: ("nvlink-errors", "certain")
}  # fmt: skip
# After one of these, every call of the process fails. Source: "can only be continued if the process is terminated and
# relaunched", CUDA driver API, CUresult.
STICKY = frozenset({214, 220, 700, 702, 710, *range(714, 720), 999})
NOT_READY = 802  # "required driver daemons" do not run: on boards with NVSwitch that is the fabric manager
NVSWITCHES = 2  # the first NVLink generation that came with switches


def failure_rule(case: Case) -> Iterator[Finding]:
    for failure in case.machine.measured.failures:
        if failure.kind != "stuck":
            yield _failed(case, failure)
        elif not failure.pairs:
            seen = f"copies ({failure.step}) hung ({failure.detail})"
            yield observed(COPIES, "host", f"step: {failure.step}", failure.detail).fails("data.step-hung", seen)


def _nvswitch(m: Machine) -> Confidence | None:
    """How sure it is that the GPUs sit on a board with NVSwitch: by product, else by a family that has such boards."""
    if m.is_nvswitch or any(model and model.fabric in ("nvswitch", "nvlink5") for model in m.models):
        return "likely"
    rates = [nvlink_of(gpu.model) for gpu, model in zip(m.seen.gpus, m.models, strict=True) if model is None]
    return "possible" if any(rate and rate.generation >= NVSWITCHES for rate in rates) else None


def _failed(case: Case, failure: CopyFailure) -> Finding:
    m = case.machine
    pairs = sorted({(min(pair), max(pair)) for pair in failure.pairs})
    copy = f"copy GPU {listed(pairs)}" if pairs else f"copies ({failure.step})"
    subject = observed(COPIES, m.subject(pairs) if pairs else "host", f"step: {failure.step}", failure.detail)
    acs: tuple[str | None, Confidence | None] = ("acs-redirect", "possible") if m.acs else (None, None)
    if failure.kind == "crashed":
        seen = f"the measuring process crashed in {copy} ({failure.detail})"
        return subject.fails("data.copy-crashed", seen, cause=acs[0], confidence=acs[1])
    granted = bool(pairs) and not any(m.access[pair] is False for pair in pairs)
    cause, sure = CODES.get(failure.code or 0, acs)
    if cause == "false-p2p-grant" and not granted:
        cause, sure = None, None
    if failure.code == NOT_READY and (board := _nvswitch(m)):
        code, cause, sure = "data.system-not-ready", None, board
    elif failure.code in STICKY:
        code = "data.copy-failed-sticky" if cause else "data.copy-failed-sticky-unexplained"
    elif cause == "false-p2p-grant":
        code = "data.peer-access-missing"
    else:
        code = "data.copy-failed" if cause else "data.copy-failed-unexplained"
    return subject.fails(code, f"{copy} failed: {failure.detail}", cause=cause, confidence=sure)
