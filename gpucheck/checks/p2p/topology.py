"""Topology: do NVML and sysfs agree on how the GPUs are connected?

Sources: nvmlDeviceGetTopologyCommonAncestor and the NVLink peers, against the bridge chains in sysfs. A source that
could not be read agrees with nothing.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import LOST, quick_check, with_gpus
from gpucheck.knowledge.codes import Subject
from gpucheck.model import DEFECT, Finding, NvmlReading, Verdict
from gpucheck.model.facts import Facts
from gpucheck.topology.build import pair_findings
from gpucheck.topology.wiring import View

NAME = "topology"
ANCESTOR = "nvmlDeviceGetTopologyCommonAncestor"


@with_gpus(NAME)
def evaluate(facts: Facts, nvml: NvmlReading) -> Iterator[Finding]:
    """The disagreements, or one finding that names the classes."""
    view = View(nvml, {device.bus_id.lower(): device for device in facts.pci})
    own = list(pair_findings(view))
    yield from own
    # A SKIP of copies through host memory has a value; one without a value leaves the class unknown.
    if any(finding.verdict in (Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN) or finding.seen is None for finding in own):
        return
    if not view.pairs:
        yield Subject(check=NAME).skips("p2p.single-gpu", "1 GPU")
        return
    compared, classes = view.compared(), [view.cell(*pair) or "?" for pair in view.pairs]
    seen = ", ".join(f"{classes.count(cls)} x {cls}" for cls in dict.fromkeys(classes))
    labels = ("-".join(f"GPU{gpu.index}" for gpu in view.gpus(*pair)) for pair in view.pairs)
    lines = [f"class by NVML and by sysfs, and the same: {compared} of {len(classes)} pairs"]
    lines += (f"{label}: {cls}" for label, cls in zip(labels, classes, strict=True))
    subject = Subject(check=NAME, evidence=tuple(lines))
    refused = [gap for gap in nvml.gaps if gap.call == ANCESTOR and not gap.absent]
    if refused:
        error, number = refused[0].name.removeprefix("NVMLError_"), refused[0].code
        root = "inventory" if number in LOST else None
        code = "p2p.ancestor-unreadable" if number == DEFECT else "p2p.agreement-unknown"
        yield subject.unknown(code, seen, because_of=root, error=error, number=number)
        return
    if compared:
        yield subject.passes(seen)
        return
    by_nvml = any(any(view.ancestors(*pair)) for pair in view.pairs)
    yield subject.skips("p2p.no-path-in-sysfs" if by_nvml else "p2p.no-class-from-nvml", seen)


CHECK = quick_check(NAME, "hardware", evaluate, ("nvml", "pci"))
