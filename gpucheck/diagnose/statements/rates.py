"""Numbers that are as expected, that have no expected value, or that no copy can reach."""

from collections.abc import Iterator
from math import exp

from msgspec.structs import replace

from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.numbers import Number
from gpucheck.diagnose.score import Prediction
from gpucheck.diagnose.statements._case import Case, Claim
from gpucheck.diagnose.words import group_label, listed, percent, span
from gpucheck.knowledge import causes
from gpucheck.model.finding import Alternative, Finding
from gpucheck.model.finding.verdict import Verdict
from gpucheck.printable import counted

CHECK, BOTH = "p2p-bandwidth", "p2p-both-ways"
MEASURE = "gpucheck bandwidth on the host, or add gpus.model, gpus.pcie and matrix to the observations"
OVER, KERNELS = 1.02, 0.93
FAR_BELOW, BELOW_USUAL = 0.7, 0.74  # of the low end and of the median of what the explanation predicts
NO_PATH = 0.5  # GB/s; a Gen3 x1 link carries twice that
Rows = list[tuple[Number, Prediction]]


def state(case: Case) -> Iterator[Finding]:
    """One line for each group of equal pairs."""
    m = case.machine
    yield from _host(case)
    rows = [row for row in case.fits if row[0].quantity in ("p2p-one-way", "p2p-both-ways")]
    yield from _too_fast(case)
    one_way = [row for row in rows if row[0].quantity == "p2p-one-way"] or rows
    left = [row for row in one_way if row[0].pair not in case.blamed]
    groups: dict[tuple[str, str, str | None, bool], Rows] = {}
    for number, predicted in left:
        pair = number.pair
        known = predicted.between < 1.0
        key = number.quantity, case.world.way(pair), number.cls or m.classes[pair], known
        groups.setdefault(key, []).append((number, predicted))
    worse = any(f.verdict in (Verdict.FAIL, Verdict.WARN) for f in case.findings)
    for (quantity, way, cls, known), group in groups.items():
        if known and all(_is_far_below(number, predicted, way, cls) for number, predicted in group):
            yield _below(case, cls, group)
        elif known:
            yield _good(case, quantity, way, cls, group)
        elif not worse:
            yield _unknown(case, group)
    both = [row for row in rows if row[0].quantity == "p2p-both-ways" and row[0].pair not in case.blamed]
    if both and one_way is not rows:
        parts = [exp(number.value) / predicted.median for number, predicted in both]
        words = f"{counted(len(both), 'GPU pair')} both ways, {percent(parts)} of expected"
        yield Claim(BOTH, Verdict.PASS).finding(seen=words)


def _is_far_below(number: Number, predicted: Prediction, way: str, cls: str | None) -> bool:
    """Far below the range; where the path is known and no socket is crossed, below a part of the median already."""
    value = exp(number.value)
    near = way == "direct" and cls in ("PIX", "PXB", "PHB", "NODE") and number.quantity == "p2p-one-way"
    return value < FAR_BELOW * predicted.low or (near and value < BELOW_USUAL * predicted.median)


def _host(case: Case) -> Iterator[Finding]:
    rows = [(n, p) for n, p in case.fits if n.quantity == "host-copy" and p.between < 0.9]
    slow = any(f.cause for f in case.findings if f.verdict in (Verdict.FAIL, Verdict.WARN))
    if rows and not slow and all(exp(n.value) >= p.low for n, p in rows):
        gpus = len({n.a for n, _ in rows})
        words = f"{span(exp(n.value) for n, _ in rows)} GB/s between host memory and {counted(gpus, 'GPU')}"
        yield Claim("host-copies", Verdict.PASS).finding(seen=words, why=f"healthy: {rows[0][1].basis}")


def _good(case: Case, quantity: str, way: str, cls: str | None, rows: Rows) -> Finding:
    values = [exp(number.value) for number, _ in rows]
    usual = [predicted.median for _, predicted in rows]
    raw = sorted({case.world.raw(number.pair)[0] for number, _ in rows}) if way != "nvlink" else []
    parts = [value / middle for value, middle in zip(values, usual, strict=True)]
    kernels = way == "nvlink" and case.machine.measured.method.engine != "ce" and max(parts) < KERNELS
    what = f"{'staged ' if way == 'staged' else ''}{cls or 'all'} pairs"
    count = len({number.pair for number, _ in rows})
    both = " both ways" if quantity == "p2p-both-ways" else ""
    return Claim(
        CHECK if not both else BOTH,
        Verdict.PASS,
        "expected-limit" if kernels else None,
        "possible" if kernels else None,
    ).finding(
        seen=f"{counted(count, 'GPU pair')}, {percent(parts)} of expected",
        why=f"healthy: {what} reach {span(values)} GB/s{both}"
        + (f" of {span(raw)} GB/s raw per direction" if raw else "")
        + f" ({rows[0][1].basis})"
        + ("; that is what kernels reach, copy engines reach more: no link is missing" if kernels else ""),
        evidence=(f"pairs: {listed(sorted({number.pair for number, _ in rows}))}",),
    )


def _below(case: Case, cls: str | None, rows: Rows) -> Finding:
    pairs = sorted({number.pair for number, _ in rows})
    return Claim(CHECK, Verdict.WARN).finding(
        subject=group_label(case.machine, pairs) if len(pairs) < len(case.machine.pairs) or len(pairs) == 1 else "host",
        seen=f"{span(exp(number.value) for number, _ in rows)} GB/s",
        wanted=f"about {span(predicted.median for _, predicted in rows)} GB/s",
        why=f"{cls or 'these'} pairs are below what they should reach ({rows[0][1].basis}), and no cause "
        "is likelier than none",
        fix="read every hop under load: gpucheck verify; dmesg | grep AER",
        evidence=(f"pairs: {listed(pairs)}",),
    )


def _unknown(case: Case, rows: Rows) -> Finding:
    values = [exp(number.value) for number, _ in rows]
    seen = f"{span(values)} GB/s on {counted(len({number.pair for number, _ in rows}), 'GPU pair')}"
    if max(values) < NO_PATH:
        found = Claim(CHECK, Verdict.WARN).finding(
            seen=seen,
            wanted=f"{NO_PATH:g} GB/s at the very least",
            why="slower than any healthy path between two GPUs, whatever their model: peer traffic is redirected, "
            "translated, or crosses something that does not carry it",
            fix=MEASURE,
        )
        suspects = ("iommu-translation", "acs-redirect", "cross-socket")
        others = (Alternative(cause=key, probability=0.25, would_show=causes()[key].confirm) for key in suspects)
        return replace(found, alternatives=tuple(others))
    lacks = "the GPU model" if any(gpu.model is None for gpu in case.machine.seen.gpus) else "a link rate of these GPUs"
    return Claim(CHECK, Verdict.UNKNOWN).finding(
        seen=seen, why=f"nothing to compare with: {lacks} is not known", fix=MEASURE
    )


def nothing(machine: Machine) -> Finding:
    """The finding without any number or reading."""
    return Claim(CHECK, Verdict.UNKNOWN).finding(
        seen=f"{counted(machine.count, 'GPU')}, no bandwidth",
        wanted="measured pairs",
        why="nothing was measured, so the speed is unknown",
        fix=MEASURE,
    )


def _too_fast(case: Case) -> Iterator[Finding]:
    m, fast = case.machine, []
    for number, _ in case.fits:
        pair = number.pair
        line = case.world.line(pair) if number.quantity == "p2p-one-way" else None
        if line is not None and exp(number.value) > OVER * line and case.world.way(pair) != "staged":
            fast.append((pair, exp(number.value), line))
    if fast:
        pairs = sorted({pair for pair, _, _ in fast})
        yield Claim(CHECK, Verdict.WARN).finding(
            subject=group_label(m, pairs),
            seen=round(max(value for _, value, _ in fast), 1),
            wanted=min(line for _, _, line in fast),
            why=f"GPU {listed(pairs)}: above the line rate of the path: the number or the path is wrong",
            fix="compare gpucheck topo with nvidia-smi topo -m and nvidia-smi nvlink -s; report it with --format json",
        )
