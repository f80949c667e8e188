"""Expectations for a topology that came from a paste: only what the paste itself names can be expected."""

import msgspec

from gpucheck.knowledge import NvLinkRate
from gpucheck.model.finding import Finding
from gpucheck.model.hardware import Pair
from gpucheck.model.topology import Topology
from gpucheck.model.verdict import Verdict
from gpucheck.topology.expected import gpu_nvlink, nvlink_expected, slower


def with_expectations(topology: Topology) -> Topology:
    """The same topology, NVLink pairs of named GPU models with what they should reach.

    A SKIP finding says why the other pairs have no expectation: a matrix names no PCIe links.
    """
    rates = {gpu.index: gpu_nvlink(gpu.name) for gpu in topology.gpus}
    pairs = tuple(_expect(pair, rates) for pair in topology.pairs)
    without = sum(pair.expected is None for pair in pairs)
    if not without:
        return msgspec.structs.replace(topology, pairs=pairs)
    reason = Finding(
        check="topology",
        verdict=Verdict.SKIP,
        subject="host",
        seen=f"{without} of {len(pairs)} pairs without an expected bandwidth",
        why="a pasted matrix names neither PCIe link speeds nor, without nvidia-smi -L beside it, the GPU model",
    )
    return msgspec.structs.replace(topology, pairs=pairs, findings=(*topology.findings, reason))


def _expect(pair: Pair, rates: dict[int, NvLinkRate | None]) -> Pair:
    if pair.cls is None or not pair.cls.startswith("NV"):
        return pair
    rate = slower(rates.get(pair.a), rates.get(pair.b))
    return msgspec.structs.replace(pair, expected=nvlink_expected(int(pair.cls[2:]), rate))
