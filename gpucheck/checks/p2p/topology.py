"""Topology: do NVML and sysfs agree on how the GPUs are connected?

Sources: nvmlDeviceGetTopologyCommonAncestor and the NVLink peers, against the bridge chains in sysfs. A source that
could not be read agrees with nothing.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import LOST, no_gpus, not_looked
from gpucheck.knowledge.codes import Subject
from gpucheck.model import DEFECT, Check, Finding, Host, NvmlFailure, NvmlReading, PciDevice, Topology, Verdict
from gpucheck.topology import of
from gpucheck.topology.view import View

NAME = "topology"
ANCESTOR = "nvmlDeviceGetTopologyCommonAncestor"


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """Both sources, and the topology made from them."""

    nvml: NvmlReading | NvmlFailure
    pci: tuple[PciDevice, ...]
    topology: Topology | None


def probe(host: Host) -> Values:
    return Values(nvml=host.nvml(), pci=host.pci(), topology=of(host))


def evaluate(values: Values) -> Iterator[Finding]:
    """The disagreements, or one finding that names the classes."""
    if isinstance(values.nvml, NvmlFailure):
        yield not_looked(NAME, values.nvml)
        return
    topology = values.topology
    if topology is None or not topology.gpus:
        yield no_gpus(NAME)
        return
    # Missing NVLinks and ACS are part of a topology as well, and the finding of a check of their own.
    own = [finding for finding in topology.findings if finding.check == NAME]
    yield from own
    # A SKIP of copies through host memory has a value; one without a value leaves the class unknown.
    if any(finding.verdict in (Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN) or finding.seen is None for finding in own):
        return
    if not topology.pairs:
        yield Subject(check=NAME).skips("p2p.single-gpu", "1 GPU")
        return
    view = View(values.nvml, {device.bus_id.lower(): device for device in values.pci})
    compared, pairs = view.compared(), len(topology.pairs)
    lines = (f"class by NVML and by sysfs, and the same: {compared} of {pairs} pairs",)
    subject = Subject(
        check=NAME, evidence=(*lines, *(f"GPU{pair.a}-GPU{pair.b}: {pair.cls}" for pair in topology.pairs))
    )
    refused = [gap for gap in values.nvml.gaps if gap.call == ANCESTOR and not gap.absent]
    if refused:
        error, number = refused[0].name.removeprefix("NVMLError_"), refused[0].code
        root = "inventory" if number in LOST else None
        code = "p2p.ancestor-unreadable" if number == DEFECT else "p2p.agreement-unknown"
        yield subject.unknown(code, _classes(topology), because_of=root, error=error, number=number)
        return
    if compared:
        yield subject.passes(_classes(topology))
        return
    by_nvml = any(any(view.ancestors(*pair)) for pair in view.pairs)
    yield subject.skips("p2p.no-path-in-sysfs" if by_nvml else "p2p.no-class-from-nvml", _classes(topology))


def _classes(topology: Topology) -> str:
    classes = [pair.cls or "?" for pair in topology.pairs]
    return ", ".join(f"{classes.count(cls)} x {cls}" for cls in dict.fromkeys(classes))


CHECK = Check(NAME, frozenset({"hardware", "quick"}), probe, evaluate)
