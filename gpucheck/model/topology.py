"""How the GPUs of one machine are connected: the outside contract of ``gpucheck topo``."""

import msgspec

from gpucheck.model.advice import Advice
from gpucheck.model.diagnosis.observations import Observations, ObservedGpu
from gpucheck.model.finding import Finding
from gpucheck.model.host.hardware import Nic, Pair, TopologyGpu
from gpucheck.model.host.wiring import Wiring

SCHEMA = "gpucheck.topology/1"


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``gpucheck topo --format json``.

    source: ``nvml``, ``nvidia-smi-topo``, ... : where it was read.
    matrix: n x n path classes in GPU order, ``X`` on the diagonal, None where the source has a gap.
    wiring: None where the source names no PCI functions. advice: None until it is worked out.
    """

    schema: str = SCHEMA
    simulated: bool = False
    source: str
    gpus: tuple[TopologyGpu, ...]
    matrix: tuple[tuple[str | None, ...], ...]
    nics: tuple[Nic, ...] = ()
    pairs: tuple[Pair, ...] = ()
    findings: tuple[Finding, ...] = ()
    wiring: Wiring | None = None
    advice: Advice | None = None

    def observations(self) -> Observations:
        """The GPUs and their path classes as observations of one machine."""
        gpus = [ObservedGpu(model=g.name, bus_id=g.pci_bus_id, numa_node=g.numa_node) for g in self.gpus]
        matrix = tuple(tuple(None if cell == "X" else cell for cell in row) for row in self.matrix)
        return Observations(gpus=tuple(gpus), matrix=matrix)
