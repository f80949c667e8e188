"""Confidential computing: where it is on, do the GPUs accept work?

Sources: nvmlSystemGetConfComputeState and nvmlSystemGetConfComputeGpusReadyState. After each boot of a confidential
virtual machine the GPUs reject work until they were attested and set to ready (NVIDIA Confidential Computing deployment
guide); CUDA then fails with 802 (system not ready), as it does without an NVSwitch fabric.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import query_nvml, reading_with_gpus
from gpucheck.model import Check, Finding, NvmlFailure, NvmlReading
from gpucheck.model.finding.about import About

NAME = "confidential-computing"
FIX = "attest the GPUs, then: sudo nvidia-smi conf-compute -srs 1; its state: nvidia-smi conf-compute -grs"


def evaluate(values: NvmlReading | NvmlFailure) -> Iterator[Finding]:
    nvml = reading_with_gpus(NAME, values)
    if isinstance(nvml, Finding):
        yield nvml
        return
    state = nvml.confidential
    about = About(check=NAME)
    if state is None or not state.enabled:
        yield about.skips(f"not applicable: confidential computing is {'off' if state else 'not reported'}")
    elif state.ready is None:
        yield about.unknown("readiness of the GPUs unknown: NVML did not report it", "nvidia-smi conf-compute -grs")
    elif state.ready:
        yield about.passes("confidential computing on, GPUs ready")
    else:
        why = "The GPUs accept no work until they are set to ready: CUDA fails with error 802 (system not ready)."
        yield about.fails("GPUs not ready", "ready", why, FIX, "confidential-not-ready")


CHECK = Check(NAME, frozenset({"software", "quick"}), query_nvml, evaluate)
