"""Bytes that were compared."""

from collections.abc import Iterator

from gpucheck.checks._case import Case, Claim, listed
from gpucheck.checks._machine import Machine
from gpucheck.diagnose.suspects import Suspect, bad_pairs, suspects
from gpucheck.knowledge.codes import Subject
from gpucheck.model.finding import Finding, Verdict

CHECK = "p2p-integrity"
UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def rule(case: Case) -> Iterator[Finding]:
    """Wrong data, a GPU whose own comparison cannot be trusted, and data that was right."""
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
    first = found[0]
    claim = Claim(
        CHECK, Verdict.FAIL, first.cause, "likely" if first.read else "possible", tuple(one.cause for one in found[1:])
    )
    where = f"wrong data on {len(bad)} of {len(m.pairs)} pairs" if bad else f"{elements} wrong elements in collectives"
    yield claim.finding(
        "data.received-wrong",
        subject=m.subject(pairs) if len(pairs) < max(len(m.pairs), 2) or m.count == 2 else "host",
        seen=where,
        wanted="what was sent",
        damage=kinds or None,
        suspect=first.cause,
        evidence=(f"pairs: {listed(pairs)}", *(line for row in m.measured.damaged for line in row.evidence)),
    )


def _at_source(m: Machine) -> Iterator[Finding]:
    """GPUs whose own memory changed what they then sent."""
    rows = [row for row in m.measured.damaged if row.at_source]
    for gpu in sorted({pair[0] for row in rows for pair in row.pairs}):
        mine = [row for row in rows if any(pair[0] == gpu for pair in row.pairs)]
        yield Claim(CHECK, Verdict.FAIL).finding(
            "data.changed-at-source",
            subject=m.gpu_label(gpu),
            seen=f"GPU {gpu}: its memory changed data before it was sent",
            wanted="what was written",
            evidence=tuple(line for row in mine for line in row.evidence),
        )


def _right(m: Machine) -> Iterator[Finding]:
    distrusted = sorted({pair for row in m.measured.damaged if row.host_only for pair in row.pairs})
    if distrusted:
        yield Claim(CHECK, Verdict.FAIL).finding(
            "data.comparison-wrong",
            subject=m.subject(sorted({(min(p), max(p)) for p in distrusted})),
            seen=f"GPU {listed(distrusted)}: wrong on the host, right on the GPU",
        )
    elif any(row.at_source for row in m.measured.damaged):
        return
    elif m.measured.bytes_compared and not bad_pairs(m):
        yield Subject(check=CHECK).passes(f"{_bytes(m.measured.bytes_compared)} compared, no wrong word")
    elif m.measured.integrity_bad_pairs == () and not m.measured.damage and not bad_pairs(m):
        yield Subject(check=CHECK).passes("every byte that was compared was right")


def _bytes(count: int) -> str:
    return next((f"{count / unit:.1f} {name}" for unit, name in UNITS if count >= unit), f"{count} B")
