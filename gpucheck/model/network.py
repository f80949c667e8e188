"""The outside contract of ``gpucheck network``. GB/s is 10**9 bytes per second of payload, in one direction."""

import msgspec

from gpucheck.model.answer import Answer
from gpucheck.model.diagnosis.observations import Observations, ObservedNic
from gpucheck.model.host.network import PortCounters

SCHEMA = "gpucheck.network/1"
REDUCED = "all_reduce"


class NicMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """One test of perftest or NCCL. client, server: RDMA devices, equal within one card.

    operation: ``write read send latency``; REDUCED of two GPUs with NCCL. memory: ``host``, or how perftest
    reached that of the GPU: ``peermem dma-buf``; ``gpudirect`` as NCCL logged it. value: GB/s, or us of latency; None
    with the reason in note. expected_gb_s, basis: the least of port, PCIe path and GPU link. alone: measured again.
    wire: the bytes left the card; None where its counters do not show it. wrong: elements of an all_reduce.
    """

    client: str
    server: str
    operation: str
    memory: str = "host"
    gpu: str | None = None
    together: bool = False
    value: float | None = None
    unit: str = "GB/s"
    expected_gb_s: float | None = None
    basis: str = ""
    alone: float | None = None
    wire: bool | None = None
    wrong: int = 0
    note: str = ""


class Transferred(msgspec.Struct, frozen=True, kw_only=True):
    """What went through the network cards of one host, as rules evaluate it.

    nics: every card of the results. counters: two readings of each port, around all tests. packets: how many these
    moved. direct: cards with a way to the memory of a GPU. gone: cards that left the host. interrupted: by a signal.
    """

    results: tuple[NicMeasurement, ...] = ()
    nics: tuple[ObservedNic, ...] = ()
    counters: tuple[PortCounters, ...] = ()
    packets: float = 0.0
    direct: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    interrupted: bool = False


class NetworkReport(Answer, frozen=True, kw_only=True):
    """One run. engine: the version of perftest, or ``simulated``. counters: how much each rose, by port and name.

    observations: what ``gpucheck diagnose --observations`` reads.
    """

    schema: str = SCHEMA
    engine: str
    results: tuple[NicMeasurement, ...] = ()
    counters: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    method: tuple[str, ...] = ()
    observations: Observations = Observations()
