"""Measured rates of two reports of one host: what is slower than noise explains."""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from gpucheck.comparison.counters import NAME, REGRESSION
from gpucheck.comparison.report_parts import Copies, copies_of
from gpucheck.model import Finding, Report
from gpucheck.model.bandwidth import Measured
from gpucheck.model.finding.about import About

# One missing NVLink of 18 costs 5.6 %; two runs of a healthy machine differ by less than half of that.
WARN_BELOW, FAIL_BELOW = 0.95, 0.85
# Deviations that noise explains, of both runs together.
SIGMAS = 3.0
MAD_TO_SIGMA = 1.4826
SHOWN = 12


class Drop(NamedTuple):
    """One value that fell. noise: the part of it that the spread of both runs explains."""

    kind: str
    subject: str
    before: float
    now: float
    noise: float

    @property
    def ratio(self) -> float:
        """Return the rate now as a share of the rate before."""
        return self.now / self.before


def slower(before: Report, now: Report) -> Iterator[Finding]:
    """Yield one finding for each kind of path that is slower; none if one of the runs did not measure."""
    old, new = copies_of(before), copies_of(now)
    if old is None or new is None:
        return
    if old.engine != new.engine:
        about = About(check=NAME)
        yield about.skips(f"the baseline was measured with {old.engine}, this run with {new.engine}: not comparable")
        return
    kinds: dict[str, list[Drop]] = defaultdict(list)
    for drop in (*_pairs(old, new), *_host_links(old, new)):
        if drop.ratio < min(WARN_BELOW, 1 - drop.noise):
            kinds[drop.kind].append(drop)
    for kind, drops in kinds.items():
        yield _finding(kind, sorted(drops, key=lambda drop: drop.ratio))


def _pairs(before: Copies, now: Copies) -> Iterator[Drop]:
    then = {(before.bus_id(pair.src), before.bus_id(pair.dst)): pair.measured for pair in before.pairs}
    for pair in now.pairs:
        ends = (now.bus_id(pair.src), now.bus_id(pair.dst))
        old = then.get(ends)
        if old is not None and pair.measured is not None and old.gb_s > 0:
            subject = f"pair:{ends[0]}-{ends[1]}"
            yield Drop(f"{pair.cls or 'P2P'} pairs", subject, old.gb_s, pair.measured.gb_s, _noise(old, pair.measured))


def _noise(*runs: Measured) -> float:
    return SIGMAS * MAD_TO_SIGMA * math.hypot(*(run.mad_percent / 100 for run in runs))


def _host_links(before: Copies, now: Copies) -> Iterator[Drop]:
    then = {before.bus_id(link.device): link for link in before.host_device}
    for link in now.host_device:
        bus_id = now.bus_id(link.device)
        old = then.get(bus_id)
        for name, kind in (("h2d_gb_s", "host to device"), ("d2h_gb_s", "device to host")):
            was, value = getattr(old, name, None), getattr(link, name)
            if was and value is not None:
                yield Drop(kind, f"gpu:{bus_id}", was, value, 0.0)


def _finding(kind: str, drops: list[Drop]) -> Finding:
    worst = drops[0]
    more = (f"{len(drops) - SHOWN} more",) if len(drops) > SHOWN else ()
    # Both directions of one pair are one subject.
    places = {frozenset(drop.subject.partition(":")[2].split("-")) for drop in drops}
    about = About(
        check=NAME,
        subject=worst.subject if len(places) == 1 else "host",
        unit="GB/s",
        evidence=(*(f"{d.subject}: {d.before:g} then, {d.now:g} GB/s now" for d in drops[:SHOWN]), *more),
    )
    why = f"{kind}: {len(drops)} are slower than in the baseline, the worst by {1 - worst.ratio:.0%}"
    fix = "gpucheck topo and the findings of this report name the link; compare what changed since; gpucheck bandwidth"
    report = about.fails if worst.ratio < FAIL_BELOW else about.warns
    return report(round(worst.now, 2), round(worst.before, 2), why, fix, REGRESSION, "likely")
