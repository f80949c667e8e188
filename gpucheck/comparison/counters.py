"""Counters of two reports of one host: how fast they rose in between.

A counter that is lower than before was set to zero in between (a reboot, a reload of the driver, another board): then
all that it shows now came after that. The time in between is the reports' distance, or the uptime where that is less.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpucheck.checks.pcie.errors import PER_HOUR
from gpucheck.knowledge.codes import Subject
from gpucheck.model import AerCounts, Finding, Gpu, NvLink, PciDevice, PcieErrors, Verdict

NAME = "baseline"
LEAST_HOURS = 1.0
"""Shorter intervals are treated as this long: a few errors must not look like a high rate."""


class Counter(NamedTuple):
    """A counter, then and now. fatal: any rise is a failure; else a rate is evaluated, or any rise where rate is 0."""

    name: str
    before: int | None
    now: int | None
    code: str
    fails: bool = False
    per_hour: float = 0.0


def of_gpu(before: Gpu, now: Gpu) -> Iterator[Counter]:
    """Yield the counters of a GPU and of its NVLinks."""
    old, new = before.health.pcie_errors, now.health.pcie_errors
    yield Counter("PCIe replays", old.replays, new.replays, "comparison.pcie-repeats", per_hour=PER_HOUR)
    yield from _pcie("PCIe", old, new)
    yield Counter("ECC uncorrected", *_ecc(before, now, "uncorrected"), "comparison.ecc-uncorrected", fails=True)
    # NVIDIA publishes no limit for corrected ones (Xid 92 is logged when its own is reached): the PCIe limit applies.
    yield Counter("ECC corrected", *_ecc(before, now, "corrected"), "comparison.ecc-corrected", per_hour=PER_HOUR)
    for name, was, rows in _replaced(before, now):
        yield Counter(name, was, rows, "comparison.memory-retired")
    yield from _nvlinks(before, now)


def _pcie(name: str, old: PcieErrors | AerCounts, new: PcieErrors | AerCounts) -> Iterator[Counter]:
    yield Counter(f"{name} corrected", old.correctable, new.correctable, "comparison.pcie-repeats", False, PER_HOUR)
    yield Counter(f"{name} non-fatal", old.non_fatal, new.non_fatal, "comparison.pcie-losses", fails=True)
    yield Counter(f"{name} fatal", old.fatal, new.fatal, "comparison.pcie-losses", fails=True)


def _ecc(before: Gpu, now: Gpu, kind: str) -> tuple[int | None, int | None]:
    """Return both counts over the life of the board if both reports have them, else those since boot."""
    aggregate = tuple(getattr(gpu.health.ecc_counts, f"aggregate_{kind}") for gpu in (before, now))
    volatile = tuple(getattr(gpu.health.ecc_counts, f"volatile_{kind}") for gpu in (before, now))
    was, count = volatile if None in aggregate else aggregate
    return was, count


def _replaced(before: Gpu, now: Gpu) -> Iterator[tuple[str, int, int]]:
    """Yield remapped rows (Ampere and newer) and retired pages (older), by the kind of error."""
    was, rows = before.health.row_remap, now.health.row_remap
    if was and rows:
        yield "rows remapped (uncorrectable)", was.uncorrected, rows.uncorrected
        yield "rows remapped (corrected)", was.corrected, rows.corrected
    then, pages = before.health.retired_pages, now.health.retired_pages
    if then and pages:
        yield "pages retired (double-bit)", then.double_bit, pages.double_bit
        yield "pages retired (single-bit)", then.single_bit, pages.single_bit


def _nvlinks(before: Gpu, now: Gpu) -> Iterator[Counter]:
    then, repeats = {link.link: link for link in before.nvlinks}, "comparison.nvlink-repeats"
    for link in now.nvlinks:
        old = then.get(link.link, NvLink(link=link.link, active=False))
        name = f"NVLink {link.link}"
        yield Counter(f"{name} replays", old.replay_errors, link.replay_errors, repeats, per_hour=PER_HOUR)
        yield Counter(f"{name} CRC", old.crc_errors, link.crc_errors, repeats, per_hour=PER_HOUR)
        recoveries = "comparison.nvlink-recoveries"
        yield Counter(f"{name} recoveries", old.recovery_errors, link.recovery_errors, recoveries)


def of_port(before: PciDevice, now: PciDevice) -> Iterator[Counter]:
    if before.aer is not None and now.aer is not None:
        yield from _pcie("AER", before.aer, now.aer)


def rises(subject: str, counters: Iterable[Counter], hours: float, uptime: float | None) -> Iterator[Finding]:
    """Yield a finding for every counter that rose too much. hours: time between the reports; uptime: of the host."""
    for counter in counters:
        if counter.before is None or counter.now is None:
            continue
        zeroed = counter.now < counter.before
        rise = counter.now if zeroed else counter.now - counter.before
        over = min(hours, uptime) if zeroed and uptime is not None else hours
        rate = rise / max(over, LEAST_HOURS)
        if rise == 0 or rate <= counter.per_hour:
            continue
        change = f"{counter.before} then, {counter.now} now{', set to zero in between' if zeroed else ''}"
        evidence = (f"{counter.name}: {change}", f"{rise} in {over:.2f} h")
        seen = f"{counter.name}: {rise} more, {rate:,.0f} an hour" if rate >= 10 else f"{counter.name}: {rise} more"
        wanted = f"at most {counter.per_hour:g} an hour" if counter.per_hour else "none more"
        verdict = Verdict.FAIL if counter.fails else Verdict.WARN
        yield Subject(check=NAME, name=subject, evidence=evidence).finding(verdict, counter.code, seen, wanted)
