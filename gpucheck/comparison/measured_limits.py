"""Measured values compared with the floors and ceilings of the expectations."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from gpucheck.comparison.expectations import ByClass, Rates
from gpucheck.comparison.findings import SITE, Stated
from gpucheck.comparison.report_parts import COPIES, Copies, copies_of
from gpucheck.model import Finding, Report, Verdict

# Slow pairs that a finding names; one slow switch makes hundreds.
SHOWN = 12
MATRICES = ("p2p_uni_gb_s", "p2p_bidir_gb_s", "p2p_latency_us")


class Number(NamedTuple):
    """One measured value. subject: as findings name it."""

    subject: str
    value: float


def limits(report: Report, stated: Stated) -> Iterator[Finding]:
    """Yield one finding for each limit: PASS, or the worst value, with the others as evidence."""
    wanted = list(_stated(stated))
    if not wanted:
        return
    copies = copies_of(report)
    for at, cls, limit, least in wanted:
        if copies is None:
            yield _nothing(report, at, limit, stated)
            continue
        name = at.split(".")[1]
        numbers = list(_pairs(copies, name, cls) if name in MATRICES else _host_links(copies, name))
        yield _evaluate(numbers, at, cls, limit, least=least, stated=stated)


def _stated(stated: Stated) -> Iterator[tuple[str, str | None, float, bool]]:
    """Yield path in the file, path class, limit, and whether it is a floor."""
    for part, least in (("floors", True), ("ceilings", False)):
        rates: Rates = getattr(stated.expected, part)
        for name in rates.__struct_fields__:
            value: ByClass | float | None = getattr(rates, name)
            if isinstance(value, dict):
                for cls, limit in value.items():
                    whole = cls == "*"
                    yield f"{part}.{name}" + ("" if whole else f".{cls}"), None if whole else cls, limit, least
            elif value is not None:
                yield f"{part}.{name}", None, value, least


def _nothing(report: Report, at: str, limit: float, stated: Stated) -> Finding:
    """Return UNKNOWN if the run failed to measure, SKIP if it was not part of the run."""
    tried = [f for f in report.findings if f.check.startswith(COPIES) and f.verdict is not Verdict.SKIP]
    if any(f.check != "p2p-status" for f in tried):
        return stated.not_reported(at, limit, "the copies returned no values (see the findings named p2p)")
    return stated.not_measured(at, limit, "no copies were measured in this run; use gpucheck verify --level standard")


def _pairs(copies: Copies, name: str, cls: str | None) -> Iterator[Number]:
    matrix = copies.matrices.get(name) or ()
    for pair in copies.pairs:
        value: Any = None
        if name == "p2p_uni_gb_s" and pair.measured is not None:
            value = pair.measured.gb_s
        elif name == "p2p_latency_us":
            value = pair.latency_us
        elif max(pair.src, pair.dst) < len(matrix):
            value = matrix[pair.src][pair.dst]
        if value is not None and cls in (None, pair.cls):
            yield Number(f"pair:{copies.bus_id(pair.src)}-{copies.bus_id(pair.dst)}", value)


def _host_links(copies: Copies, name: str) -> Iterator[Number]:
    for link in copies.host_device:
        value = getattr(link, name)
        if value is not None:
            yield Number(f"gpu:{copies.bus_id(link.device)}", value)


def _evaluate(numbers: list[Number], at: str, cls: str | None, limit: float, *, least: bool, stated: Stated) -> Finding:
    unit = "us" if at.split(".")[1].endswith("_us") else "GB/s"
    if not numbers and cls is not None:
        why = f"no pair of class {cls} was measured; gpucheck topo shows the classes of this host"
        return stated.unmet(at, f"no {cls} pair", limit, why, "compare the host with the expectations", SITE)
    if not numbers:
        return stated.not_reported(at, limit, "not measured: one GPU has no pair")
    worst = (min if least else max)(numbers, key=lambda number: number.value)
    bad = sorted((n for n in numbers if (n.value < limit) == least and n.value != limit), key=lambda n: n.value)
    if not bad:
        side = "slowest" if least else "longest"
        return stated.met(at, f"{side} of {len(numbers)}: {worst.value:g} {unit}", f"{limit:g} {unit}")
    more = (f"{len(bad) - SHOWN} more",) if len(bad) > SHOWN else ()
    why = f"{len(bad)} of {len(numbers)} are {'below the floor' if least else 'above the ceiling'}"
    fix = "read the p2p findings of this report first; then: gpucheck bandwidth, gpucheck topo, gpucheck diagnose"
    return stated.unmet(
        at,
        round(worst.value, 2),
        limit,
        why,
        fix,
        SITE,
        subject=worst.subject,
        unit=unit,
        also=(*(f"{number.subject}: {number.value:g} {unit}" for number in bad[:SHOWN]), *more),
    )
