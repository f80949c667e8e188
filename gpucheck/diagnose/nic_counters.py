"""Counters of network ports that tools printed: totals have no date, so only what rises between readings counts.

Not looked at: corrected bits, ECN, CNP, pause, waiting, out_of_sequence and rnr_nak_retry_err, which are normal at
work, and outbound_pci_stalled_*, which are percentages of the last second.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import NamedTuple

from gpucheck.knowledge.codes import Subject, would_show
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict
from gpucheck.model.host.network import PortCounters
from gpucheck.printable import counted

NAME = "nic-counters"
MOST_SHOWN = 16
# A rise in one interval of unknown length may be one event.
SEVERAL = 2


class Group(NamedTuple):
    """Counters that are evidence of one cause."""

    cause: str
    names: re.Pattern[str]


GROUPS = (
    Group(
        "nic-errors",
        re.compile(
            r"symbol_errors?|port_rcv_errors|local_link_integrity_errors|link_error_recovery|rx_icrc_encapsulated|"
            r"rx_(?:pcs_)?symbol_err(?:_phy)?|rx_crc_errors(?:_phy)?|rx_in_range_len_errors_phy|effective_physical_errors|rx_crc"
        ),
    ),
    Group("nic-flap", re.compile(r"link_downed|link_down_events(?:_phy)?")),
    Group(
        "nic-congestion",
        re.compile(
            r"port_xmit_discards|[rt]x_discards_phy|rx_prio\d_(?:buf_|cong_)?discards?|local_ack_timeout_err|packet_seq_err|"
            r"req_transport_retries_exceeded|roce_slow_restart|tx_pause_storm_error_events|max_retry_exceeded|"
            r"retry_exceeded_err|rx_roce_discards"
        ),
    ),
)
# The registers of a port stop at their largest value.
CEILINGS = {
    **dict.fromkeys(("symbol_error", "port_rcv_errors", "port_xmit_discards"), (1 << 16) - 1),
    **dict.fromkeys(("link_error_recovery", "link_downed"), (1 << 8) - 1),
    "local_link_integrity_errors": (1 << 4) - 1,
}


# Every value of a counter in the order of the readings, by its name.
Series = dict[str, list[int]]


def of_counters(every: Iterable[PortCounters]) -> Iterator[Finding]:
    """A finding for what rises at a port, else one for all totals; none for counters of traffic alone."""
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
    for port, series in by_port.items():
        for group in GROUPS:
            own = {name: values for name, values in series.items() if group.names.fullmatch(name)}
            looked_at |= {port} if own else set()
            rose = _rises(own)
            above = [
                f"{port}: {name} {values[-1]}{_note(name, values[-1])}" for name, values in own.items() if values[-1]
            ]
            if rose:
                quiet = False
                yield _risen(port, group.cause, own, rose)
            elif above:
                totals += above
                causes[group.cause] = None
    if totals:
        more = [f"and {len(totals) - MOST_SHOWN} more"] if len(totals) > MOST_SHOWN else []
        subject = Subject(check=NAME, evidence=(*totals[:MOST_SHOWN], *more))
        yield subject.unknown("pastes.totals-undated", f"{len(totals)} totals above 0", alternatives=would_show(causes))
    elif quiet and looked_at:
        yield Subject(check=NAME).passes(f"0 errors at {counted(len(looked_at), 'port')}")


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
    return subject.finding(verdict, "pastes.counters-rise", seen, cause=cause, device=port)


def _shown(values: Sequence[int]) -> str:
    """Return ``3 -> 9 -> 11``, of many the first and the last ones."""
    texts = [str(value) for value in values]
    return " -> ".join(texts if len(texts) <= MOST_SHOWN else [*texts[:4], "...", *texts[-4:]])


def _note(name: str, value: int) -> str:
    return ", its largest value: what came later was not counted" if value == CEILINGS.get(name) else ""
