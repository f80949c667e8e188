"""Transfers through network cards: did every test have a result?

Source: perftest within each card, between pairs where asked for, and on all cards at once.
FAIL if a card left the host meanwhile. UNKNOWN if a test had no result, or a signal ended the run. How fast they are
is evaluated with the links between GPUs: docs/network.md.
"""

from collections.abc import Iterator
from statistics import median

from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding
from gpucheck.model.diagnosis.observations import ObservedNic
from gpucheck.model.facts import Facts
from gpucheck.model.network import REDUCED, NicMeasurement

NAME, NCCL = "nic-bandwidth", "nic-nccl"
# NCCL has no published floor: of three equal cards the median counts. Below LITTLE of the limit nothing is claimed.
EQUALS, LITTLE, FAR = 3, 0.5, 0.75


def evaluate(facts: Facts) -> Iterator[Finding]:
    moved = facts.transferred
    cards = {nic.name: nic for nic in moved.nics}
    for name in sorted(moved.gone):
        yield _about(NAME, cards[name]).fails("nic.card-gone", "not there", "there", device=name)
    failed: dict[str, NicMeasurement] = {}
    for row in moved.results:
        if row.value is None and row.operation != REDUCED and not {row.client, row.server} & moved.gone:
            failed.setdefault(row.client, row)
    for name, row in failed.items():
        seen = f"{row.operation}, {row.memory} memory: no result"
        yield _about(NAME, cards[name]).unknown("nic.not-measured", seen, device=name, reason=row.note)
    if moved.interrupted:
        yield Subject(check=NAME).unknown("nic.run-interrupted", f"interrupted after {len(moved.results)} tests")


def nccl(facts: Facts) -> Iterator[Finding]:
    """NCCL: does an all_reduce of two GPUs through each card alone come to a right result, and as fast as equal cards?

    Source: gpucheck network --nccl: NCCL with no other way between the two GPUs, once for each card; its log names card
    and memory.
    FAIL for wrong elements. WARN below three quarters of the median of three equal cards, and if it copies through host
    memory although a GPU is below the switch of the card. UNKNOWN without a result, or below half of the limit.
    """
    moved = facts.transferred
    rows = [row for row in moved.results if row.operation == REDUCED]
    cards = {nic.name: nic for nic in moved.nics}
    rates: dict[str | None, list[float]] = {}
    for row in rows:
        rates.setdefault(cards[row.client].product, []).extend([row.value] if row.value is not None else [])
    own = [finding for row in rows for finding in _of_row(row, cards[row.client], rates, moved.direct)]
    yield from own
    if rows and not own:
        values = [row.value or 0.0 for row in rows]
        ways = ", ".join(sorted({row.memory for row in rows}))
        yield Subject(check=NCCL).passes(
            f"{len(rows)} network cards, {min(values):.1f} to {max(values):.1f} GB/s, {ways}"
        )


def _of_row(
    row: NicMeasurement, nic: ObservedNic, rates: dict[str | None, list[float]], direct: frozenset[str]
) -> Iterator[Finding]:
    subject = _about(NCCL, nic, unit="GB/s")
    equal = rates[nic.product]
    usual = median(equal) if nic.product is not None and len(equal) >= EQUALS else None
    if row.wrong:
        yield subject.fails("nic.nccl-wrong", f"{row.wrong} wrong elements", 0, device=nic.name)
    elif row.value is None:
        yield subject.unknown("nic.nccl-unknown", "no result", device=nic.name, reason=row.note)
    elif usual is not None and row.value < FAR * usual:
        yield subject.warns("nic.nccl-slow-card", row.value, round(usual, 2), device=nic.name)
    elif row.value < LITTLE * (row.expected_gb_s or 0.0):
        yield subject.unknown("nic.nccl-low", row.value, row.expected_gb_s, device=nic.name)
    elif nic.name in direct and row.memory == "host":
        yield subject.warns("nic.nccl-without-gpudirect", "host memory", "GPUDirect", device=nic.name)


def _about(check: str, nic: ObservedNic, unit: str | None = None) -> Subject:
    return Subject(check=check, name=f"nic:{nic.bus_id or nic.name}", unit=unit)


TAGS = frozenset({"measure", NAME})
CHECKS = (Check(NAME, TAGS, evaluate, ("transferred",)), Check(NCCL, TAGS, nccl, ("transferred",)))
