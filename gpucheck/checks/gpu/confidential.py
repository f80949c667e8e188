"""Confidential computing: where it is on, do the GPUs accept work?

Sources: nvmlSystemGetConfComputeState and nvmlSystemGetConfComputeGpusReadyState. After each boot of a confidential
virtual machine the GPUs reject work until they were attested and set to ready (NVIDIA Confidential Computing deployment
guide); CUDA then fails with 802 (system not ready), as it does without an NVSwitch fabric.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import with_gpus
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding, NvmlReading
from gpucheck.model.facts import Facts

NAME = "confidential-computing"


@with_gpus(NAME)
def evaluate(_: Facts, nvml: NvmlReading) -> Iterator[Finding]:
    state, subject = nvml.confidential, Subject(check=NAME)
    if state is None:
        yield subject.skips("gpu.confidential-computing-not-reported")
    elif not state.enabled:
        yield subject.skips("gpu.confidential-computing-off")
    elif state.ready is None:
        yield subject.unknown("gpu.confidential-readiness-unknown")
    elif state.ready:
        yield subject.passes("confidential computing on, GPUs ready")
    else:
        yield subject.fails("gpu.confidential-not-ready", "GPUs not ready", "ready")


CHECK = Check(NAME, frozenset({"software", "quick"}), evaluate=evaluate, needs=("nvml",))
