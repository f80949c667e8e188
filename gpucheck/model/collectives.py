"""The outside contract of ``gpucheck collectives``. GB/s is 10**9 bytes per second, as nccl-tests counts."""

import msgspec

from gpucheck.model.answer import Answer
from gpucheck.model.diagnosis.observations import Observations

SCHEMA = "gpucheck.collectives/1"


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
