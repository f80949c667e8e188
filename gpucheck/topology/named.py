"""Expected bandwidth for an imported topology, from what the imported output names itself."""

import msgspec

from gpucheck.knowledge import NvLinkRate
from gpucheck.model.finding.about import About
from gpucheck.model.host.hardware import Expected, Pair, TopologyGpu
from gpucheck.model.host.wiring import Wiring
from gpucheck.model.topology import Topology
from gpucheck.topology.expected import gpu_nvlink, narrowest, nvlink_expected, pcie_expected, slower
from gpucheck.topology.pcie.cpu import Cpu, known
from gpucheck.topology.wiring import Paths

MATRIX_ONLY = "a pasted matrix contains neither PCIe link speeds nor, without nvidia-smi -L, the GPU model"
LINKS_MISSING = "the dump lacks PCIe links on their paths, or the compute capability of the GPU"
NVLINKS_MISSING = "the file does not list NVLinks, which may join these GPUs"


def with_expectations(topology: Topology) -> Topology:
    """Return the topology with expected bandwidth: NVLink by GPU model, PCIe by the reported links.

    A SKIP finding gives the reason for pairs without an expectation.
    """
    gpus = {gpu.index: gpu for gpu in topology.gpus}
    paths, cpu = _Known(topology.wiring), _cpu(topology.wiring)
    pairs = tuple(_expect(pair, gpus, paths, cpu) for pair in topology.pairs)
    without = sum(pair.expected is None for pair in pairs)
    if not without:
        return msgspec.structs.replace(topology, pairs=pairs)
    seen = f"{without} of {len(pairs)} pairs without an expected bandwidth"
    reason = About(check="topology").skips(paths.why, seen)
    return msgspec.structs.replace(topology, pairs=pairs, findings=(*topology.findings, reason))


class _Known:
    """The paths of a dump that names its PCI functions; otherwise None."""

    def __init__(self, wiring: Wiring | None) -> None:
        reported = wiring if wiring is not None and wiring.told else None
        self.paths = Paths(reported) if reported is not None and reported.nvlinks_known else None
        self.why = MATRIX_ONLY if reported is None else LINKS_MISSING if reported.nvlinks_known else NVLINKS_MISSING


def _expect(pair: Pair, gpus: dict[int, TopologyGpu], known_: _Known, cpu: Cpu | None) -> Pair:
    if pair.cls is None:
        return pair
    if pair.cls.startswith("NV"):
        rate = slower(_rate(gpus[pair.a]), _rate(gpus[pair.b]))
        return msgspec.structs.replace(pair, expected=nvlink_expected(int(pair.cls[2:]), rate))
    if known_.paths is None:
        return pair
    hops = known_.paths.between(f"GPU{pair.a}", f"GPU{pair.b}")
    answer: Expected | None = pcie_expected(pair.cls, list(hops), cpu)
    return msgspec.structs.replace(pair, expected=answer, narrowest=narrowest(hops))


def _rate(gpu: TopologyGpu) -> NvLinkRate | None:
    return gpu_nvlink(gpu.name) or gpu_nvlink(gpu.compute_capability)


def _cpu(wiring: Wiring | None) -> Cpu | None:
    """The CPU that all NUMA nodes are of."""
    nodes = wiring.nodes if wiring else ()
    kinds = {known(node.vendor) for node in nodes}
    return kinds.pop() if len(kinds) == 1 else None
