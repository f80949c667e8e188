"""How the GPUs of one machine are connected: the outside contract of ``gpucheck topo``."""

import msgspec

from gpucheck.model.diagnosis.observations import Observations, ObservedGpu
from gpucheck.model.finding import Finding
from gpucheck.model.host.wiring import Nic, Pair, TopologyGpu, Wiring


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A good set of `size` GPUs, by index.

    slowest: class of its worst pair. slowest_gb_s: what that pair should reach, None where it is not known.
    equals: how many sets are as good.
    environment: the shell assignment that gives a job these GPUs.
    """

    size: int
    gpus: tuple[int, ...]
    slowest: str | None = None
    slowest_gb_s: float | None = None
    numa_nodes: tuple[int, ...] = ()
    equals: int = 1
    environment: str


class Pinning(msgspec.Struct, frozen=True, kw_only=True):
    """Where the process of one GPU should run. command: what to put before it. nics: labels of the nearest cards."""

    gpu: int
    numa_node: int | None = None
    cpus: str | None = None
    command: str
    nics: tuple[str, ...] = ()


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """asymmetries: what sets some GPUs or pairs apart from the others, one sentence each."""

    best: tuple[Choice, ...] = ()
    pinning: tuple[Pinning, ...] = ()
    asymmetries: tuple[str, ...] = ()


SCHEMA = "gpucheck.topology/1"


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``gpucheck topo --format json``.

    source: ``nvml``, ``nvidia-smi-topo``, ... : where it was read.
    matrix: n x n path classes in GPU order, ``X`` on the diagonal, None where the source has a gap.
    wiring: None where the source names no PCI functions. advice: None until it is worked out.
    variables: for jobs of several hosts, ``NCCL_IB_HCA==mlx5_0,mlx5_1``: the active network cards of the GPUs.
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
    variables: tuple[str, ...] = ()

    def observations(self) -> Observations:
        """The GPUs and their path classes as observations of one machine."""
        gpus = [ObservedGpu(model=g.name, bus_id=g.pci_bus_id, numa_node=g.numa_node) for g in self.gpus]
        matrix = tuple(tuple(None if cell == "X" else cell for cell in row) for row in self.matrix)
        return Observations(gpus=tuple(gpus), matrix=matrix)
