"""The outside contract of ``gpucheck collectives``. GB/s is 10**9 bytes per second, as nccl-tests counts."""

from typing import Literal

import msgspec

from gpucheck.model.answer import Answer
from gpucheck.model.diagnosis.observations import Observations

SCHEMA = "gpucheck.collectives/1"
EndKind = Literal[
    "alone", "missing-package", "waiting", "interrupted", "killed", "failed", "defect", "no-resources", "no-device"
]


class CollectiveResult(msgspec.Struct, frozen=True, kw_only=True):
    """One collective at one size. variant: ``as is``, or ``ring`` with NVLS switched off.

    checked: rounds whose result was compared element by element; wrong: elements that differed, of all ranks.
    """

    operation: str
    size_bytes: int
    variant: str
    time_us: float | None = None
    mad_percent: float | None = None
    algbw_gb_s: float | None = None
    busbw_gb_s: float | None = None
    expected_busbw_gb_s: float | None = None
    checked: int = 0
    wrong: int = 0
    note: str | None = None


class CollectivesReport(Answer, frozen=True, kw_only=True):
    """One run. devices: by rank. transports: NCCL's channels by kind; algorithms: by collective, as NCCL names both.

    observations: the results as ``gpucheck diagnose --observations`` reads them.
    """

    schema: str = SCHEMA
    backend: str
    kind: str
    ranks: int
    nodes: int
    devices: tuple[str, ...]
    versions: dict[str, str | None]
    results: tuple[CollectiveResult, ...] = ()
    transports: dict[str, int] = msgspec.field(default_factory=dict)
    algorithms: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    observations: Observations = Observations()


class RanksEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run of ranks has not all results. detail: what was seen, one line. partly: some collectives were run.

    alone: there is one rank only. waiting: the time was up. killed: by a signal from outside. failed: in a collective.
    """

    kind: EndKind
    detail: str
    partly: bool = False
    evidence: tuple[str, ...] = ()


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as rules evaluate it: the report without findings."""

    report: CollectivesReport
    ends: tuple[RanksEnd, ...] = ()
