"""What nccl-tests' text and JSON have in common: which collective it was, on how many GPUs, and the row that counts."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from gpucheck.imports._common import bus_id
from gpucheck.imports._numbers import AGAIN, MOST_GPUS
from gpucheck.imports._problem import absent
from gpucheck.imports._regex import regex
from gpucheck.model.diagnosis.observations import Collective, Measured, Observations, ObservedGpu

TOOL = "nccl-tests"
OPERATIONS = {
    **{name: name for name in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "sendrecv")},
    **{name: name for name in ("scatter", "gather", "reduce")},
    "alltoall": "all_to_all",
}
# NCCL_DEBUG=INFO: "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "via SHM/direct/direct", "via NET/IB/0".
VIA = regex(r"\bvia (P2P/\w+|SHM/\w+|NET/\w+)")
SET_BY_ENVIRONMENT = regex(r"\b(NCCL_[A-Z0-9_]{1,60}) set by environment to ([^\n]*)")
SLOWEST_FIRST = ("NET", "SHM", "P2P")
LONGEST_VALUE = 200
# The JSON holds the whole environment; nothing but these is looked at.
ENVIRONMENT = regex(r"(NCCL_\w{1,60}|CUDA_\w{1,60}|LD_PRELOAD)=(.{0,500})", re.DOTALL)
NO_NAME = regex(r"[0-9a-f]{12}|localhost|(?:host|node)(?:name)?|container|pod", re.IGNORECASE)
NO_LEFTOVER = {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE", "NCCL_VERSION", "NCCL_HOME"}


class Row(NamedTuple):
    """One message size, the better of out of place and in place. wrong: both together, None = not checked."""

    bytes: int
    algbw_gb_s: float | None
    busbw_gb_s: float | None
    wrong: int | None


class Rank(NamedTuple):
    """Where a rank ran."""

    host: str
    gpu: ObservedGpu


def imported(
    rows: list[Row],
    ranks: list[Rank],
    operation: str | None,
    transport: str | None,
    environment: dict[str, str],
    out_of_bounds: int | None = None,
) -> Observations:
    """Return the largest message of the run: an average over sizes is meaningless. Raises ImportProblem.

    out_of_bounds: number of results that the summary calls wrong. A run on one GPU has no bus bandwidth, only whether
    results were right.
    """
    good = [row for row in rows if row.busbw_gb_s] or [row for row in rows if row.algbw_gb_s and len(ranks) == 1]
    if not good:
        raise absent(
            f"{TOOL} result",
            "there is no row with a bus bandwidth; the run ended early or the paste is cut short",
            AGAIN,
        )
    largest = max(good, key=lambda row: row.bytes)
    hosts = {rank.host for rank in ranks}
    checked = [row.wrong for row in rows if row.wrong is not None]
    wrong = sum(checked) if checked else None
    if out_of_bounds is not None:
        wrong = max(out_of_bounds, wrong or 0)
    collective = Collective(
        op=operation or _guess(largest, len(ranks)),
        ranks=len(ranks) or None,
        bytes=largest.bytes,
        busbw_gb_s=largest.busbw_gb_s or None,
        transport=transport,
        wrong=wrong,
    )
    return Observations(
        # Ranks of several hosts, or more than one host can have GPUs, are not one machine's GPUs.
        gpus=_distinct(ranks) if len(hosts) == 1 and len(ranks) <= MOST_GPUS else (),
        environment=environment,
        measured=Measured(collectives=(collective,)),
    )


def _distinct(ranks: list[Rank]) -> tuple[ObservedGpu, ...]:
    """The GPUs of the ranks. Old versions print the bus alone: where two GPUs have the same they are in two domains."""
    buses = [rank.gpu.bus_id for rank in ranks]
    unsure = len(set(buses)) != len(buses)
    return tuple(replace(rank.gpu, bus_id=None) if unsure else rank.gpu for rank in ranks)


def only_host(hosts: Iterable[str]) -> str | None:
    """Return the name of the host that all ranks ran on; None for several, and for a name that many hosts have."""
    names = set(hosts)
    name = names.pop() if len(names) == 1 else ""
    return None if not name or NO_NAME.fullmatch(name) else name


def operation_in(text: str) -> str | None:
    """Return the collective of a program's name (``all_reduce_perf``)."""
    found = re.search(rf"\b({'|'.join(OPERATIONS)})_perf\b", text)
    return OPERATIONS[str(found[1])] if found else None


def _guess(row: Row, ranks: int) -> str | None:
    """Only all_reduce has a bus bandwidth of 2(n-1)/n times the algorithm bandwidth."""
    if ranks < 3 or not row.algbw_gb_s or not row.busbw_gb_s:
        return None
    return "all_reduce" if abs(row.busbw_gb_s / row.algbw_gb_s - 2 * (ranks - 1) / ranks) < 0.02 else None


def transport_in(text: str) -> str | None:
    return slowest(VIA.findall(text))


def slowest(transports: Iterable[str]) -> str | None:
    """Return the slowest of these transports: one pair over the network stack slows the whole ring."""
    named = sorted(set(transports))
    return next((one for kind in SLOWEST_FIRST for one in named if one.startswith(kind)), None)


def set_by_environment(text: str) -> list[tuple[str, str]]:
    found = ((name, value.rstrip().removesuffix(".")) for name, value in SET_BY_ENVIRONMENT.findall(text))
    return [(name, value) for name, value in found if len(value) <= LONGEST_VALUE]


def leftovers(pairs: list[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in pairs if name not in NO_LEFTOVER}


def bus_id_of(address: str) -> str | None:
    """``0000:07:00`` or ``0x07`` as Linux writes it."""
    long = re.fullmatch(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})", address.strip().lower())
    if long:
        return bus_id(*long.groups())
    short = re.fullmatch(r"0x([0-9a-f]{1,2})", address.strip().lower())
    return bus_id("0", short[1], "0") if short else None
