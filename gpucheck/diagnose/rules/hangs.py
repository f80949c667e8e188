"""Copies and collectives that never returned."""

from collections.abc import Iterator

from gpucheck.checks._case import Case, Claim
from gpucheck.diagnose.suspects import hang_of, suspects
from gpucheck.model.finding import Finding, Verdict

CHECK = "p2p-copies"


def rule(case: Case) -> Iterator[Finding]:
    """One finding. Causes that were found before come first: wrong data and lost links are about the same path."""
    m = case.machine
    hang = hang_of(m)
    if hang is None:
        return
    known = list(dict.fromkeys(one.cause for one in case.findings if one.cause and one.verdict is Verdict.FAIL))
    pattern = "hang-of-one-gpu" if len(hang.gpus) == 1 else "hang-with-p2p-off" if hang.with_p2p_off else "hang"
    found = [*known, *(one.cause for one in suspects(m, pattern, list(m.pairs)) if one.cause not in known)]
    stuck = next((failure for failure in m.measured.failures if failure.kind == "stuck"), None)
    what = hang.op or "a copy"
    if stuck:
        what = f"copy {', '.join(f'GPU {a} -> {b}' for a, b in stuck.pairs[:4]) or stuck.step}"
    subject = m.subject([(hang.gpus[0], hang.gpus[1])]) if len(hang.gpus) == 2 else "host"
    claim = Claim(CHECK, Verdict.FAIL, found[0], "possible", tuple(found[1:]))
    off = {None: (), True: ("hangs with P2P off too",), False: ("returns with P2P off",)}[hang.with_p2p_off]
    yield claim.finding(
        "data.copy-hung",
        subject=m.gpu_label(hang.gpus[0]) if len(hang.gpus) == 1 else subject,
        seen=f"{what} hung" + (f" ({stuck.detail})" if stuck and stuck.detail else ""),
        wanted="completion",
        suspect=found[0],
        evidence=off,
    )
