"""How the GPUs of one machine are connected: the outside contract of ``gpucheck topo``."""

import msgspec

from gpucheck.model.finding import Finding
from gpucheck.model.hardware import Nic, Pair, TopologyGpu

SCHEMA = "gpucheck.topology/1"


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``gpucheck topo --format json``.

    source: ``nvml``, ``nvidia-smi-topo``, ... : who said it.
    matrix: n x n path classes in GPU order, ``X`` on the diagonal, None where the source has a gap.
    """

    schema: str = SCHEMA
    simulated: bool = False
    source: str
    gpus: tuple[TopologyGpu, ...]
    matrix: tuple[tuple[str | None, ...], ...]
    nics: tuple[Nic, ...] = ()
    pairs: tuple[Pair, ...] = ()
    findings: tuple[Finding, ...] = ()
