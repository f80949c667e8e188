"""Topology: do NVML and sysfs agree on how the GPUs are connected?

Sources: nvmlDeviceGetTopologyCommonAncestor and the NVLink peers, against the bridge chains in sysfs. A source that
could not be read agrees with nothing.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import LOST, no_gpus, not_looked, reason
from gpucheck.model import Check, Finding, Host, NvmlFailure, NvmlReading, PciDevice, Topology, Verdict
from gpucheck.model.finding.about import About
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
        yield About(check=NAME).skips("not applicable: a single GPU has no pair", "1 GPU")
        return
    view = View(values.nvml, {device.bus_id.lower(): device for device in values.pci})
    compared, pairs = view.compared(), len(topology.pairs)
    lines = (f"class by NVML and by sysfs, and the same: {compared} of {pairs} pairs",)
    about = About(check=NAME, evidence=(*lines, *(f"GPU{pair.a}-GPU{pair.b}: {pair.cls}" for pair in topology.pairs)))
    refused = [gap for gap in values.nvml.gaps if gap.call == ANCESTOR and not gap.absent]
    if refused:
        why = f"agreement of NVML and sysfs unknown: {reason(refused[0])}"
        root = "inventory" if refused[0].code in LOST else None
        yield about.unknown(why, "gpucheck verify --only inventory", _classes(topology), because_of=root)
        return
    if compared:
        yield about.passes(_classes(topology))
        return
    source = "NVML" if any(any(view.ancestors(*pair)) for pair in view.pairs) else "sysfs"
    missing = "sysfs shows no path of these GPUs" if source == "NVML" else "NVML reports no path class"
    yield about.skips(f"not run: {source} is the only source ({missing})", _classes(topology))


def _classes(topology: Topology) -> str:
    classes = [pair.cls or "?" for pair in topology.pairs]
    return ", ".join(f"{classes.count(cls)} x {cls}" for cls in dict.fromkeys(classes))


CHECK = Check(NAME, frozenset({"hardware", "quick"}), probe, evaluate)
