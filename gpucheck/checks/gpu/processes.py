"""Processes: does a process use the GPUs now?

Source: nvmlDeviceGetComputeRunningProcesses. A busy GPU invalidates every timing, and on a node that should be idle it
is left over from an earlier job. Inside a container NVML lists the processes of the container's PID namespace only.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import each_gpu, not_reported
from gpucheck.model import Check, Finding, Gpu, GpuProcess, Host, NvmlFailure, NvmlReading
from gpucheck.model.finding.about import About

NAME = "processes"
CALLS = tuple(
    f"nvmlDeviceGet{kind}RunningProcesses{version}"
    for kind in ("Compute", "Graphics")
    for version in ("", "_v2", "_v1")
)
MPS_SERVER = "nvidia-cuda-mps-server"
SHOWN = 8


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs, and the kind of container if this is one."""

    nvml: NvmlReading | NvmlFailure
    container: str | None = None


def probe(host: Host) -> Values:
    return Values(nvml=host.nvml(), container=host.system().container)


def evaluate(values: Values) -> Iterator[Finding]:
    nothing = "no GPU of this host lists its processes"
    yield from each_gpu(NAME, values.nvml, lambda gpu: _evaluate(values, gpu), nothing=nothing)


def _evaluate(values: Values, gpu: Gpu) -> Finding | None:
    if gpu.health.processes is None:
        return not_reported(NAME, values.nvml, gpu, *CALLS, what="GPU processes")
    users = [process for process in gpu.health.processes if process.kind == "compute"]
    about = About(
        check=NAME,
        subject=f"gpu:{gpu.pci_bus_id}",
        unit="processes",
        evidence=(*map(_line, users[:SHOWN]), *_in_use(gpu)),
    )
    if users and all((user.name or "").endswith(MPS_SERVER) for user in users):
        why = (
            f"The CUDA MPS server ({MPS_SERVER}) uses this GPU for as long as MPS runs, also without a job: "
            "gpucheck does not measure on it."
        )
        fix = (
            "to measure, stop MPS: echo quit | nvidia-cuda-mps-control; "
            "or allow it: gpucheck bandwidth --allow-busy-gpus"
        )
        return about.warns(len(users), 0, why, fix, "gpu-busy")
    if users:
        pids = ",".join(str(process.pid) for process in users[:SHOWN])
        why = (
            "Other processes use this GPU, so measurements are unreliable. On an idle node, they may be left over "
            "from a job."
        )
        fix = f"wait for the job to end; list its processes: ps -o user,pid,etime,args -p {pids}"
        return about.warns(len(users), 0, why, fix, "gpu-busy")
    if values.container:
        why = f"not run: NVML lists only processes of this {values.container} container, none of the rest of the host"
        return about.skips(why, 0)
    return about.passes(0)


def _line(process: GpuProcess) -> str:
    used = "memory not reported" if process.memory_bytes is None else f"{process.memory_bytes >> 20} MiB"
    return f"process {process.pid} {process.name or '(name not reported)'}: {used}"


def _in_use(gpu: Gpu) -> Iterator[str]:
    """What shows that a GPU is in use although no process is listed."""
    if gpu.health.memory_used_bytes is not None:
        yield f"GPU memory in use: {gpu.health.memory_used_bytes >> 20} MiB"
    if gpu.health.gpu_utilization_percent is not None:
        yield f"GPU utilization: {gpu.health.gpu_utilization_percent} %"


CHECK = Check(NAME, frozenset({"software", "quick"}), probe, evaluate)
