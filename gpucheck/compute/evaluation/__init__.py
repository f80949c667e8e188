"""From what the devices measured to findings. Pure functions; GPUs of one model on one host are compared."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from gpucheck.compute.evaluation.clocks import clocks
from gpucheck.compute.evaluation.groups import about, counters
from gpucheck.compute.evaluation.rates import doubtful, rates
from gpucheck.compute.evaluation.results import checked, results
from gpucheck.knowledge.gpus import code_runs
from gpucheck.knowledge.tables import torch
from gpucheck.model import Finding
from gpucheck.model.compute import ComputeDevice
from gpucheck.model.finding.about import About

NAME = "compute"
# CUDA error 209 (cudaErrorNoKernelImageForDevice), and how the engine names the GPU that has it.
NO_CODE, CAPABILITY = "no kernel image is available", re.compile(r"compute capability (\d+\.\d+)")
TORCH = "install torch where gpucheck runs: python -m pip install torch (gpucheck stack resolve names the build)"
REPORT = "report it with the output of: gpucheck compute --format json"
MEMORY = "nvidia-smi shows the processes that use the memory; end them, or omit the GPU with --devices"
RESOURCES = "df -h /tmp /dev/shm; free -h; ulimit -a; free or raise what is used up, then: gpucheck compute"
STUCK = "look for Xid in dmesg and for processes in state D; then reboot the host"
XID = "read dmesg for Xid lines of this GPU: gpucheck verify --only kernel-log"


def gaps(devices: Sequence[ComputeDevice]) -> Iterator[Finding]:
    """Yield one finding for each device that failed; one in all for a package that is missing."""
    failed = [device for device in devices if device.failed is not None]
    missing = [device for device in failed if device.failed == "missing-package"]
    if missing:
        package = missing[0].failure
        yield About(check=NAME).unknown(
            f"the Python environment of gpucheck lacks {package}",
            f"{TORCH}\nOr omit it: gpucheck verify --skip compute",
            f"compute unknown: package {package} is not installed",
            wanted="a run with torch",
        )
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
    named = f"torch {build}" if (build := next(builds, None)) else "a build with code for this GPU"
    which = ", ".join(f"GPU {device.index}" for device in devices)
    return About(check=NAME, evidence=tuple(f"GPU {d.index} ({d.bus_id}): {d.failure}" for d in devices)).unknown(
        f"{devices[0].name}: {reasons[0]}",
        f"Install {named} where gpucheck runs; gpucheck stack resolve names what fits the host\n"
        "Or omit it: gpucheck verify --skip compute",
        f"compute unknown on {which}: the installed framework has no code for it",
        wanted="a result",
        cause="arch-not-in-build",
    )


def _failed(device: ComputeDevice) -> Finding:
    made = about(NAME, device, device.failure)
    if device.failed == "stuck":
        why = "the GPU did not end its work within many times the usual time"
        return made.fails("no progress", "an end of the work", why, STUCK, "wedged-driver", "likely")
    if device.failed == "cuda-error":
        return made.fails(device.failure, "no CUDA error", "CUDA returned an error while computing", XID, None)
    if device.failed == "crashed":
        why = "the process that computed was ended by a signal: by a fault in native code, or from outside"
        return made.unknown(why, f"{XID}; dmesg also names processes that were killed for memory", "process ended")
    why, fix = {
        "no-memory": ("the GPU has too little free memory: 4 GiB are needed", MEMORY),
        "not-started": ("torch could not use the GPU", "gpucheck verify --only stack states which build fits"),
        "no-process": ("the operating system started no process", "free memory or raise the limit: ulimit -a"),
        "no-resources": ("the host has no space, memory, processes or open files left for it", RESOURCES),
    }.get(device.failed or "", ("gpucheck or its engine failed, which is no result about the GPU", REPORT))
    cause = "host-resources" if device.failed in ("no-process", "no-resources") else None
    return made.unknown(why, fix, device.failure, wanted="a result", cause=cause)


__all__ = ["CHECKS", "checked", "doubtful", "evaluate"]

# The names of the findings.
CHECKS = ("compute-matrix", "compute-memory", "compute-results", "compute-clocks", "compute-errors")


def evaluate(devices: Sequence[ComputeDevice]) -> tuple[Finding, ...]:
    """Return the findings of all devices: what is missing, wrong results, errors, clocks, rates."""
    return tuple(chain(gaps(devices), results(devices), counters(devices), clocks(devices), rates(devices)))
