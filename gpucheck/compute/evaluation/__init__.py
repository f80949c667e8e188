"""From what the devices measured to findings. Pure functions; GPUs of one model on one host are compared."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from gpucheck.compute.evaluation.rates import clocks, counters, doubtful, rates, subject_of
from gpucheck.compute.evaluation.results import checked, results
from gpucheck.knowledge.codes import Subject
from gpucheck.knowledge.gpus import code_runs
from gpucheck.knowledge.tables import torch
from gpucheck.model import Finding
from gpucheck.model.compute import ComputeDevice

NAME = "compute"
# CUDA error 209 (cudaErrorNoKernelImageForDevice), and how the engine names the GPU that has it.
NO_CODE, CAPABILITY = "no kernel image is available", re.compile(r"compute capability (\d+\.\d+)")
# Of a device that failed for a reason that is no result about it; another kind is a failure of gpucheck.
NOT_COMPUTED = {
    "no-memory": "compute.no-memory",
    "not-started": "compute.torch-rejects-gpu",
    "no-process": "compute.no-process",
    "no-resources": "compute.no-resources",
}


def gaps(devices: Sequence[ComputeDevice]) -> Iterator[Finding]:
    """Yield one finding for each device that failed; one in all for a package that is missing."""
    failed = [device for device in devices if device.failed is not None]
    missing = [device for device in failed if device.failed == "missing-package"]
    if missing:
        package = missing[0].failure
        seen = f"compute unknown: package {package} is not installed"
        yield Subject(check=NAME).unknown("compute.torch-missing", seen, "a run with torch", package=package)
    without_code = [device for device in failed if NO_CODE in device.failure and device.failed == "not-started"]
    if without_code:
        yield _without_code(without_code)
    for device in failed:
        if device.failed != "missing-package" and device not in without_code:
            yield _failed(device)


def _without_code(devices: Sequence[ComputeDevice]) -> Finding:
    """Return one finding for all GPUs that the build has no code for, with the newest build that has it."""
    reasons = tuple(dict.fromkeys(device.failure for device in devices))
    capabilities = {found[1] for reason in reasons if (found := CAPABILITY.search(reason))}
    builds = (
        f"{release.version}+{build.build}"
        for release in reversed(torch().releases)
        for build in release.builds
        if build.archs and capabilities and all(code_runs(each, build.archs) for each in capabilities)
    )
    which = ", ".join(f"GPU {device.index}" for device in devices)
    subject = Subject(check=NAME, evidence=tuple(f"GPU {d.index} ({d.bus_id}): {d.failure}" for d in devices))
    seen = f"compute unknown on {which}: the installed framework has no code for it"
    name, reason, build = devices[0].name, reasons[0], next(builds, None)
    if build is None:
        return subject.unknown("compute.no-build-for-gpu", seen, "a result", name=name, reason=reason)
    return subject.unknown("compute.no-code-for-gpu", seen, "a result", name=name, reason=reason, build=build)


def _failed(device: ComputeDevice) -> Finding:
    subject = subject_of(NAME, device, device.failure)
    if device.failed == "stuck":
        return subject.fails("compute.work-stuck", "no progress", "an end of the work")
    if device.failed == "cuda-error":
        return subject.fails("compute.cuda-error", device.failure, "no CUDA error")
    if device.failed == "crashed":
        return subject.unknown("compute.process-crashed", "process ended")
    code = NOT_COMPUTED.get(device.failed or "", "compute.engine-failed")
    return subject.unknown(code, device.failure, "a result")


__all__ = ["CHECKS", "checked", "doubtful", "evaluate"]

# The names of the findings.
CHECKS = ("compute-matrix", "compute-memory", "compute-results", "compute-clocks", "compute-errors")


def evaluate(devices: Sequence[ComputeDevice]) -> tuple[Finding, ...]:
    """Return the findings of all devices: what is missing, wrong results, errors, clocks, rates."""
    return tuple(chain(gaps(devices), results(devices), counters(devices), clocks(devices), rates(devices)))
