"""Copies that ended without a result: by the code that CUDA returned, or with their process."""

from collections.abc import Iterator

from gpucheck.checks._case import Case, Claim, listed
from gpucheck.checks._machine import Machine, nvlink_of
from gpucheck.model.diagnosis.observations import CopyFailure
from gpucheck.model.finding import Confidence, Finding, Verdict

CHECK = "p2p-copies"
# cudaError_t -> cause. 217 names peer access only where the driver granted it. Source: CUDA runtime API, cudaError_t.
CODES: dict[int, tuple[str, Confidence]] = {
    214: ("ecc-uncorrected", "certain"), 217: ("false-p2p-grant", "likely"), 220: ("nvlink-errors", "certain")
}  # fmt: skip
# After one of these, every call of the process fails. Source: "can only be continued if the process is terminated and
# relaunched", CUDA driver API, CUresult.
STICKY = frozenset({214, 220, 700, 702, 710, *range(714, 720), 999})
NOT_READY = 802  # "required driver daemons" do not run: on boards with NVSwitch that is the fabric manager
NVSWITCHES = 2  # the first NVLink generation that came with switches


def rule(case: Case) -> Iterator[Finding]:
    """One finding for each copy that crashed or was rejected; hangs are in data.py."""
    for failure in case.machine.measured.failures:
        if failure.kind != "stuck":
            yield _failed(case, failure)
        elif not failure.pairs:
            yield Claim(CHECK, Verdict.FAIL).finding(
                "data.step-hung",
                seen=f"copies ({failure.step}) hung ({failure.detail})",
                evidence=(f"step: {failure.step}", failure.detail),
            )


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
    evidence = (f"step: {failure.step}", failure.detail)
    subject = m.subject(pairs) if pairs else "host"
    acs: tuple[str | None, Confidence | None] = ("acs-redirect", "possible") if m.acs else (None, None)
    if failure.kind == "crashed":
        return Claim(CHECK, Verdict.FAIL, *acs).finding(
            "data.copy-crashed",
            subject=subject,
            seen=f"the measuring process crashed in {copy} ({failure.detail})",
            evidence=evidence,
        )
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
    return Claim(CHECK, Verdict.FAIL, cause, sure).finding(
        code, subject=subject, seen=f"{copy} failed: {failure.detail}", evidence=evidence
    )
