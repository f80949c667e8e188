"""Transfers within and between network cards, as perftest measures them: is each as fast as port and PCIe path allow?

Healthy cards reach 90 % to 98 % of their port (limits of Azure/azurehpc-health-checks: 380 of 400, 360 of 400, 180 of
200, 78 of 100 Gb/s; scitix/sichek: 10 us).
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from gpucheck.checks._case import Case, link_words, observed, percent, span
from gpucheck.checks._machine import Machine
from gpucheck.diagnose.suspects import Suspect, cause_of
from gpucheck.knowledge.codes import Subject
from gpucheck.model.diagnosis.observations import NicResult, Observations, ObservedNic
from gpucheck.model.finding import Finding, Verdict
from gpucheck.printable import counted
from gpucheck.topology.nics import Limit, expected

BANDWIDTH, LATENCY = "nic-bandwidth", "nic-latency"
LOW, FAR = 0.9, 0.75
BEYOND = 2.0  # of the limit: no card moves so much, so the number is not what its unit states
HIGH_US = 10.0
# So many equal cards show what is usual on a host.
SEVERAL = 2
OTHERS = ("nic-errors", "nic-congestion", "pcie-errors", "iommu-translation")


class Row(NamedTuple):
    """One result with its limits: of the links as they are, and as they could be at the rate of equal cards."""

    result: NicResult
    now: Limit
    wanted: Limit

    @property
    def part(self) -> float:
        return self.result.value / self.wanted.gb_s


def doubtful(seen: Observations) -> tuple[NicResult, ...]:
    """Return the results that are to be measured again, alone, before they may fail."""
    return tuple(row.result for row in _rows(seen) if row.part < LOW and not row.result.together)


def _rows(seen: Observations) -> list[Row]:
    virtual = bool(seen.host.virtual)
    usual = tuple(_at_the_usual_rate(nic, seen.nics) for nic in seen.nics)
    rows = []
    for result in seen.measured.nic_bw_gb_s:
        now = expected(seen.nics, result, virtual=virtual)
        wanted = expected(usual, result, best=True, virtual=virtual)
        if now is not None and wanted is not None:
            rows.append(Row(result, now, wanted))
    return rows


def _at_the_usual_rate(nic: ObservedNic, nics: tuple[ObservedNic, ...]) -> ObservedNic:
    """The card with the rate that several equal ones have, where that is higher."""
    rates = Counter(one.rate_gbit_s for one in nics if nic.product is not None and one.product == nic.product)
    usual = max((rate for rate, count in rates.items() if rate is not None and count >= SEVERAL), default=0.0)
    return nic if nic.rate_gbit_s is None or usual <= nic.rate_gbit_s else replace(nic, rate_gbit_s=usual)


def rule(case: Case) -> Iterator[Finding]:
    """One finding for each card that is slow, or one for the host; of what is slow together only, another."""
    m = case.machine
    yield from _latency(m)
    rows = _rows(m.seen)
    known = {n for row in rows for n in row.result.nics}
    if blind := [one.value for one in m.measured.nic_bw_gb_s if not known & {*one.nics}]:
        yield observed(BANDWIDTH).skips("nic.rate-not-known", f"{span(blind)} GB/s, without a limit to compare with")
    if not rows:
        return
    alone = [row for row in rows if not row.result.together]
    slow = {n: found for n in range(len(m.seen.nics)) if (found := _slowest(n, alone)) is not None}
    explained = [n for n, row in slow.items() if _cause(row) is not None]
    rest = [n for n in slow if n not in explained]
    every = len(rest) > SEVERAL and len(rest) == len(m.seen.nics)
    if every:
        yield _every(case, [slow[n] for n in rest])
    for n in explained if every else slow:
        yield _card(case, n, slow[n], [row for row in alone if row.result.nics == (n, n)])
    pairs = [row for row in alone if row.part < LOW and not {*row.result.nics} & {*slow}]
    yield from (_pair(m, row) for row in pairs)
    named = {*slow, *(n for row in pairs for n in row.result.nics)}
    crowd = [row for row in rows if row.result.together and row.part < FAR and not {*row.result.nics} & named]
    if crowd:
        least, wanted = min(row.result.value for row in crowd), min(row.wanted.gb_s for row in crowd)
        host, others = observed(BANDWIDTH, "host", *_lines(m, crowd)), ("shared-uplink", "iommu-translation")
        yield host.warns("nic.slow-together", least, wanted, others=others)
    beyond = [row for row in rows if row.part > BEYOND]
    if beyond:
        most, wanted = max(row.result.value for row in beyond), max(row.wanted.gb_s for row in beyond)
        yield observed(BANDWIDTH, "host", *_lines(m, beyond)).unknown("nic.above-limit", most, wanted)
    elif not (slow or pairs or crowd):
        rates, parts = span(row.result.value for row in rows), percent(row.part for row in rows)
        cards = counted(len({n for row in rows for n in row.result.nics}), "network card")
        yield Subject(check=BANDWIDTH).passes(f"{cards}, {rates} GB/s, {parts} of the limit")


def _slowest(n: int, rows: list[Row]) -> Row | None:
    own = [row for row in rows if row.result.nics == (n, n) and row.part < LOW]
    others = [row for row in rows if n in row.result.nics and row.result.nics != (n, n)]
    if not own and len({*(m for row in others for m in row.result.nics)}) > SEVERAL:
        own = others if all(row.part < LOW for row in others) else []
    return min(own, key=lambda row: row.part, default=None)


def _cause(row: Row) -> str | None:
    """What was read and explains the number: the port trained slower than equal ones, or a PCIe link did."""
    if row.now.gb_s >= LOW * row.wanted.gb_s or row.result.value < LOW * row.now.gb_s:
        return None
    port = row.now.port
    if port is None:
        return "nic-rate"
    return "pcie-width-reduced" if (port.width or 0) < (port.max_width or 0) else "pcie-link-downgraded"


def _card(case: Case, n: int, row: Row, own: list[Row]) -> Finding:
    m, nic = case.machine, case.machine.seen.nics[n]
    cause = _cause(row)
    subject = observed(BANDWIDTH, _subject(nic), *_lines(m, own or [row]))
    seen, wanted = row.result.value, row.wanted.gb_s
    verdict = Verdict.FAIL if row.part < FAR and not m.host.virtual else Verdict.WARN
    if cause is not None:
        port = row.now.port
        link = link_words(port.gen, port.width) if port else ""
        code = "nic.slow-port" if port is None else "nic.slow-path"
        values = {} if port is None else {"link": link, "port": port.bus_id or nic.name}
        values |= {"cause": cause, "confidence": "likely", "device": nic.name}
        return subject.finding(verdict, code, seen, wanted, **values)
    only_gpu = all((one.result.gpu is not None) == (one.part < LOW) for one in own) and any(
        one.result.gpu for one in own
    )
    if only_gpu:
        named = cause_of([Suspect(one, False) for one in ("acs-redirect", "iommu-translation", "nic-slow")])
        return subject.finding(verdict, "nic.slow-to-gpu", seen, wanted, device=nic.name, **named)
    named = cause_of([Suspect(one, True) for one in ("nic-slow", *OTHERS)])
    return subject.finding(verdict, "nic.slow-card", seen, wanted, device=nic.name, **named)


def _every(case: Case, rows: list[Row]) -> Finding:
    m = case.machine
    cause = "iommu-translation" if m.translating else "nic-slow"
    named = cause_of([Suspect(one, False) for one in dict.fromkeys((cause, *OTHERS))])
    worst, host = min(rows, key=lambda row: row.part), observed(BANDWIDTH, "host", *_lines(m, rows))
    return host.warns("nic.slow-all", worst.result.value, worst.wanted.gb_s, cards=len(rows), **named)


def _pair(m: Machine, row: Row) -> Finding:
    one, other = (m.seen.nics[n] for n in row.result.nics)
    named = cause_of([Suspect(cause, False) for cause in ("nic-congestion", "nic-address", "nic-errors")])
    subject, values = observed(BANDWIDTH, _subject(one), *_lines(m, [row])), {"device": one.name, "peer": other.name}
    return subject.warns("nic.slow-pair", row.result.value, row.wanted.gb_s, **values, **named)


def _latency(m: Machine) -> Iterator[Finding]:
    rows = [one for one in m.measured.nic_latency_us if one.value and all(m.seen.nics[n].rate_gbit_s for n in one.nics)]
    high = [one for one in rows if one.value > HIGH_US]
    for one in high:
        nic = m.seen.nics[one.nics[0]]
        yield observed(LATENCY, _subject(nic), unit="us").warns("nic.latency-high", one.value, HIGH_US, device=nic.name)
    if rows and not high:
        yield Subject(check=LATENCY).passes(f"{span(one.value for one in rows)} us")


def _subject(nic: ObservedNic) -> str:
    return f"nic:{nic.bus_id or nic.name}"


def _lines(m: Machine, rows: list[Row]) -> list[str]:
    return [_line(m, row) for row in rows]


def _line(m: Machine, row: Row) -> str:
    names = dict.fromkeys(m.seen.nics[n].name for n in row.result.nics)
    memory = f"memory of GPU {row.result.gpu.bus_id}" if row.result.gpu else "host memory"
    when = ", all cards at once" if row.result.together else ""
    return (
        f"{' to '.join(names)}, {row.result.operation}, {memory}{when}: {row.result.value:.2f} GB/s; "
        f"limit {row.now.gb_s:.2f} ({row.now.basis})"
    )
