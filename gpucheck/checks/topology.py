"""Topology: do NVML and sysfs tell the same story about how the GPUs are connected?

Sources: nvmlDeviceGetTopologyCommonAncestor and the NVLink peers, against the bridge chains in sysfs.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import no_gpus, not_looked
from gpucheck.model import Check, Finding, Host, NvmlFailure, NvmlReading, PciDevice, Topology, Verdict
from gpucheck.topology import build

NAME = "topology"


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """Both witnesses, and the kind of virtual machine where there is one: its links are the provider's choice."""

    nvml: NvmlReading | NvmlFailure
    pci: tuple[PciDevice, ...]
    virtual: str | None = None


def probe(host: Host) -> Values:
    """Ask NVML and sysfs."""
    return Values(nvml=host.nvml(), pci=host.pci(), virtual=host.system().virtual)


def evaluate(values: Values) -> Iterator[Finding]:
    """The disagreements, or one finding that names the classes."""
    if isinstance(values.nvml, NvmlFailure):
        yield not_looked(NAME, values.nvml)
        return
    if not values.nvml.gpus:
        yield no_gpus(NAME)
        return
    topology = build(values.nvml, values.pci, simulated=False, virtual=values.virtual)
    yield from topology.findings
    if any(finding.verdict in (Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN) for finding in topology.findings):
        return
    if not topology.pairs:
        yield Finding(
            check=NAME, verdict=Verdict.SKIP, subject="host", seen="1 GPU", why="a single GPU has no pair to judge"
        )
        return
    yield Finding(
        check=NAME,
        verdict=Verdict.PASS,
        subject="host",
        seen=_classes(topology),
        wanted="NVML and sysfs agree",
        evidence=tuple(f"GPU{pair.a}-GPU{pair.b}: {pair.cls}" for pair in topology.pairs),
    )


def _classes(topology: Topology) -> str:
    classes = [pair.cls or "?" for pair in topology.pairs]
    return ", ".join(f"{classes.count(cls)} x {cls}" for cls in dict.fromkeys(classes))


CHECK = Check(NAME, frozenset({"hardware", "quick"}), probe, evaluate)
