"""Counters of network ports: do errors, link failures or drops rise while this run lasts?

Source: counters and hw_counters of /sys/class/infiniband/<device>/ports/<number>, and ethtool statistics of the
interface, each read at the start and at the end of the run. Totals have no date and are not evaluated. How many errors
a link may have follows from its rate (IBTA: one in 10**12 bits); what comes more often is damage. Drops, packets that
are sent again and long pauses without damage are congestion. A register that stopped at its largest value states
nothing; then another counter of the same cause decides. verify --baseline evaluates the time between two reports.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from math import sqrt
from typing import NamedTuple

from gpucheck.checks._nvml import quick_check
from gpucheck.checks.kernel._events import Outage, outages
from gpucheck.checks.network._cards import about, cards
from gpucheck.knowledge.codes import Subject, would_show
from gpucheck.knowledge.port_counters import (
    BITS_PER_ERROR,
    CEILINGS,
    DROPS_PER_S,
    ELSEWHERE,
    GROUPS,
    PAUSED,
    PAUSED_SHARE,
)
from gpucheck.model import Finding, Verdict
from gpucheck.model.facts import Facts
from gpucheck.model.host.network import PortCounters
from gpucheck.printable import counted
from gpucheck.topology.nics import NEEDS

NAME = "nic-counters"
MOST_SHOWN = 16
# A rise in one interval of unknown length may be one event.
SEVERAL = 2
# A burst in a shorter time is no rate.
LEAST_S = 1.0
# Of packets that may be lost where only one run uses a port: Soft-RoCE on a busy host loses one in some thousands.
LOST, FEW = 1e-3, 10
CODES = {
    "nic-flap": "network.counters-flap",
    "nic-errors": "network.counters-errors",
    "nic-congestion": "network.counters-congestion",
}

# Every value of a counter in the order of the readings, by its name.
Series = dict[str, list[int]]


class Place(NamedTuple):
    """Where the counters of a port were read. gbit_s: rate of the link, None if unknown."""

    subject: Subject
    gbit_s: float | None = None


def evaluate(facts: Facts) -> Iterator[Finding]:
    """A finding for each port with a rise, and for each that could not be read; or one for the host."""
    found, none = cards(NAME, facts)
    if none is not None:
        yield none
        return
    places = {
        f"{card.device.name}/{port.number}": Place(about(NAME, card), port.rate_gbit_s)
        for card in found
        for port in card.device.ports
    }
    before, after = (
        {one.port: one for one in readings if one.port in places}
        for readings in (facts.counters_at_start, facts.counters)
    )
    if not before:
        yield Subject(check=NAME).skips("network.no-counters", len(found))
        return
    left = [port for port in before if port not in after]
    for port in left:
        yield places[port].subject.warns("network.port-vanished", "gone", "there", device=port)
    yield from of_dated([one for port in before if port in after for one in (before[port], after[port])], places)


def of_dated(
    every: Sequence[PortCounters], places: Mapping[str, Place], drops_per_s: float = DROPS_PER_S
) -> Iterator[Finding]:
    """A finding for each port with a rise, or one for the host. every: two readings of each port, with their times."""
    pairs = zip(every[::2], every[1::2], strict=True)
    own = [_of_port(places[first.port], first, last, drops_per_s) for first, last in pairs]
    yield from (finding for finding in own if finding is not None)
    if own and not any(own):
        seconds = max((last.seconds or 0) - (first.seconds or 0) for first, last in pairwise(every))
        yield Subject(check=NAME).passes(
            f"no more than a healthy link has, {counted(len(own), 'port')}, {seconds:.1f} s"
        )


def while_moved(facts: Facts) -> Iterator[Finding]:
    """The same for ports that `gpucheck network` used alone, of whose packets a few may be lost."""
    moved = facts.transferred
    cards_of = {nic.name: nic for nic in moved.nics}
    places = {
        one.port: Place(Subject(check=NAME, name=f"nic:{nic.bus_id or nic.name}"), nic.rate_gbit_s)
        for one in moved.counters
        if (nic := cards_of.get(one.port.partition("/")[0])) is not None
    }
    times = [one.seconds or 0.0 for one in moved.counters]
    seconds = max(times, default=0.0) - min(times, default=0.0)
    yield from of_dated(moved.counters, places, min(DROPS_PER_S, (FEW + LOST * moved.packets) / max(1.0, seconds)))


def _of_port(place: Place, first: PortCounters, last: PortCounters, drops_per_s: float) -> Finding | None:
    reason = first.unread or last.unread
    if reason is not None:
        return place.subject.unknown("network.counters-unread", device=first.port, reason=reason)
    seconds = (last.seconds or 0.0) - (first.seconds or 0.0)
    series = {name: [first.values[name], value] for name, value in last.values.items() if name in first.values}
    if any(after < before for before, after in series.values()):
        return place.subject.unknown("network.counters-cleared", device=first.port)
    silent: list[str] = []
    for cause, own in _by_cause(series):
        counting = {name: values for name, values in own.items() if values[-1] < CEILINGS.get(name, values[-1] + 1)}
        rises = {name: values[1] - values[0] for name, values in own.items()}
        limits = {name: _limit(name, cause, max(seconds, LEAST_S), place.gbit_s, drops_per_s) for name in own}
        over = [name for name, rise in rises.items() if rise > limits[name]]
        if over:
            return _above(place.subject, first.port, cause, {name: own[name] for name in over}, seconds)
        silent += [] if counting else own
    if silent:
        subject = place.subject.with_evidence(
            *(f"{name} {series[name][-1]}{_note(name, series[name][-1])}" for name in silent)
        )
        return subject.unknown("network.counters-saturated", device=first.port, counters=silent)
    return None


def _limit(name: str, cause: str, seconds: float, gbit_s: float | None, drops_per_s: float) -> float:
    """By how much a counter of a healthy port may rise. Of errors three standard deviations more, and three."""
    if cause == "nic-flap":
        return 0.0
    if name in PAUSED:
        return PAUSED_SHARE * seconds * 1e6
    if cause == "nic-congestion":
        return drops_per_s * seconds
    errors = (gbit_s or 0.0) * 1e9 * seconds / BITS_PER_ERROR
    return errors + 3 * sqrt(errors) + 3


def _above(subject: Subject, device: str, cause: str, series: Series, seconds: float) -> Finding:
    shown = subject.with_evidence(*(f"{device}: {name} {_shown(values)}" for name, values in series.items()))
    name, values = max(series.items(), key=lambda item: item[1][-1] - item[1][0])
    rise = f"{name}: {values[-1] - values[0]} more in {seconds:.1f} s"
    return shown.warns(CODES[cause], rise, device=device)


def of_printed(every: Iterable[PortCounters]) -> Iterator[Finding]:
    """The same for what tools printed, at unknown times: a finding for what rises at a port, else one for all totals.

    None for counters of traffic alone.
    """
    by_port: dict[str, Series] = {}
    for number, one in enumerate(every):
        # Without a name two outputs may be of two ports.
        series = by_port.setdefault(one.port or f"port {number + 1} of the input", {})
        for name, value in one.values.items():
            series.setdefault(name, []).append(value)
    totals: list[str] = []
    causes: dict[str, None] = {}
    looked_at: set[str] = set()
    quiet = True
    for port, every_series in by_port.items():
        for cause, series in _by_cause(every_series):
            own = {name: values for name, values in series.items() if name not in PAUSED}
            looked_at |= {port} if own else set()
            rose = _rises(own)
            above = [
                f"{port}: {name} {values[-1]}{_note(name, values[-1])}" for name, values in own.items() if values[-1]
            ]
            if rose:
                quiet = False
                yield _risen(port, cause, own, rose)
            elif above:
                totals += above
                causes[cause] = None
        totals += [
            f"{port}: {name} {every_series[name][-1]}"
            for name in sorted(ELSEWHERE & {*every_series})
            if every_series[name][-1]
        ]
    if totals:
        more = [f"and {len(totals) - MOST_SHOWN} more"] if len(totals) > MOST_SHOWN else []
        subject = Subject(check=NAME, evidence=(*totals[:MOST_SHOWN], *more))
        yield subject.unknown(
            "network.totals-undated", f"{len(totals)} totals above 0", alternatives=would_show(causes)
        )
    elif quiet and looked_at:
        yield Subject(check=NAME).passes(f"0 errors at {counted(len(looked_at), 'port')}")


def _by_cause(series: Series) -> Iterator[tuple[str, Series]]:
    for cause, names in GROUPS.items():
        of_cause = {
            name: values
            for name, values in series.items()
            if name in names or (cause == "nic-congestion" and name in PAUSED)
        }
        if of_cause:
            yield cause, of_cause


def _rises(series: Series) -> int:
    """In how many intervals one of these rose, and none fell: a fall shows that they were cleared."""
    steps = [[after - before for before, after in pairwise(values)] for values in series.values()]
    return sum(max(changes) > 0 and min(changes) >= 0 for changes in zip_longest(*steps, fillvalue=0))


def _risen(port: str, cause: str, series: Series, rose: int) -> Finding:
    rows = [f"{port}: {name} {_shown(values)}" for name, values in series.items() if len(set(values)) > 1]
    device = port.partition("/")[0]
    subject = Subject(check=NAME, name="host" if " " in device else f"nic:{device}", evidence=tuple(rows[:MOST_SHOWN]))
    verdict = Verdict.WARN if rose >= SEVERAL else Verdict.UNKNOWN
    seen = f"rose in {rose} of {max(map(len, series.values())) - 1} intervals"
    return subject.finding(verdict, CODES[cause], seen, confidence="possible", device=port)


def _shown(values: Sequence[int]) -> str:
    """Return ``3 -> 9 -> 11``, of many the first and the last ones."""
    texts = [str(value) for value in values]
    return " -> ".join(texts if len(texts) <= MOST_SHOWN else [*texts[:4], "...", *texts[-4:]])


def _note(name: str, value: int) -> str:
    return ", its largest value: what came later was not counted" if value == CEILINGS.get(name) else ""


FLAPS = "nic-flaps"
AFTER_BOOT_S, DAY_S = 1800.0, 86400.0
HOURS = 12
TIMES = 2
# The ports of one switch go down together.
TOGETHER_S = 3.0
PORTS = 3


def flaps(facts: Facts) -> Iterator[Finding]:
    """Link flaps: did the link of a network card of the GPUs go down and up several times?

    Source: Link down and Link up in the kernel log, which drivers write for Ethernet ports only. Totals such as
    link_downed have no date and are not used. Not counted: the first half hour after boot, when links train and cables
    are plugged; and what all ports of the host did in the same seconds, which is their switch.
    """
    found, none = cards(FLAPS, facts)
    log = facts.kernel_log
    # Of two ports of one function the log names only the function.
    ethernet = {card.pci.bus_id: card for card in found if any(p.link_layer == "ethernet" for p in card.device.ports)}
    host = Subject(check=FLAPS)
    if none is not None:
        yield none
    elif not ethernet:
        yield host.skips("network.no-ethernet-port", 0)
    elif log.source is None:
        yield host.unknown("network.flaps-unknown", error=log.denied)
    else:
        every = _of_single_ports(outages(log.lines, after=AFTER_BOOT_S), len(ethernet))
        flapping = {bus: own for bus in ethernet if len(own := _latest([o for o in every if o.bus == bus])) >= TIMES}
        for bus, own in flapping.items():
            card = ethernet[bus]
            evidence = tuple(f"[{o.down:.0f} s] down, [{o.up:.0f} s] up" for o in own[-5:])
            yield about(FLAPS, card, *evidence).warns(
                "network.link-flaps", len(own), 0, device=card.device.name, times=len(own), hours=HOURS
            )
        if not flapping:
            gone = f"; messages of the first {log.begins_s / DAY_S:.1f} days after boot are overwritten"
            yield host.passes(f"{len(ethernet)} links without flaps{gone if log.begins_s > AFTER_BOOT_S else ''}")


def _of_single_ports(every: list[Outage], ports: int) -> list[Outage]:
    if ports < PORTS:
        return every
    return [one for one in every if len({o.bus for o in every if abs(o.down - one.down) <= TOGETHER_S}) < ports]


def _latest(own: list[Outage]) -> list[Outage]:
    windows = ([o for o in own if 0 <= o.down - first.down <= HOURS * 3600] for first in own)
    return max(windows, key=len, default=[])


LIMITS = (
    "WARN from one link failure on",
    f"WARN where errors are more than one in {BITS_PER_ERROR:.0e} bits of the rate of the link",
    f"WARN where {DROPS_PER_S:g} packets a second or more are dropped or sent again, or pauses last "
    f"{100 * PAUSED_SHARE:g} % of the time",
)
FLAP_LIMITS = (f"WARN from {TIMES} times within {HOURS} hours on; not in the first {AFTER_BOOT_S / 60:g} minutes",)
CHECK = quick_check(NAME, "hardware network", evaluate, (*NEEDS, "counters_at_start", "counters"), limits=LIMITS)
CHECKS = (CHECK, quick_check(FLAPS, "hardware network", flaps, (*NEEDS, "kernel_log"), limits=FLAP_LIMITS))
