"""Compute: did every GPU compute at all?

Source: torch, or cuBLAS without it, in one child process a GPU.
FAIL if the work of a GPU does not end, or CUDA returns an error. UNKNOWN without the package, code for the GPU, memory
or a process. A package that is missing is one finding for all GPUs.
"""

from collections.abc import Iterator, Sequence

from gpucheck.checks.compute._devices import compute_check, subject_of
from gpucheck.knowledge.codes import Subject
from gpucheck.knowledge.gpus import code_runs
from gpucheck.knowledge.tables import torch
from gpucheck.model import Finding
from gpucheck.model.compute import CUBLAS, ComputeDevice
from gpucheck.model.facts import Facts

NAME = "compute"
ENGINE_MISSING = "compute.engine-missing"
# Of a device that failed for a reason that is no result about it; another kind is a failure of gpucheck.
NOT_COMPUTED = {
    "no-memory": "compute.no-memory",
    "not-started": "compute.torch-rejects-gpu",
    "no-process": "compute.no-process",
    "no-resources": "compute.no-resources",
}


def evaluate(facts: Facts) -> Iterator[Finding]:
    failed = [device for device in facts.computed.devices if device.failed is not None]
    missing = [device for device in failed if device.failed == "missing-package"]
    if missing:
        package = missing[0].failure
        seen = f"compute unknown: package {package} is not installed"
        if package == CUBLAS:
            yield Subject(check=NAME).unknown(ENGINE_MISSING, "compute unknown: neither torch nor cuBLAS is installed")
        else:
            yield Subject(check=NAME).unknown("compute.torch-missing", seen, "a run with torch", package=package)
    without_code = [device for device in failed if device.failed == "no-code"]
    if without_code:
        yield _without_code(without_code)
    for device in failed:
        if device.failed != "missing-package" and device not in without_code:
            yield _failed(device)


def _without_code(devices: Sequence[ComputeDevice]) -> Finding:
    reasons = tuple(dict.fromkeys(device.failure for device in devices))
    capabilities = {device.capability for device in devices if device.capability}
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


CHECK = compute_check(NAME, evaluate)
