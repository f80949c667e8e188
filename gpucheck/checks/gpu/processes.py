"""Processes: does a process use the GPUs now?

Source: nvmlDeviceGetComputeRunningProcesses. A busy GPU invalidates every timing, and on a node that should be idle it
is left over from an earlier job. Inside a container NVML lists the processes of the container's PID namespace only.
"""

from gpucheck.checks._nvml import about, not_reported, of_each_gpu
from gpucheck.model import Check, Finding, Gpu, GpuProcess
from gpucheck.model.facts import Facts

NAME = "processes"
CALLS = tuple(
    f"nvmlDeviceGet{kind}RunningProcesses{version}"
    for kind in ("Compute", "Graphics")
    for version in ("", "_v2", "_v1")
)
MPS_SERVER = "nvidia-cuda-mps-server"
SHOWN = 8


@of_each_gpu(NAME, nothing="gpu.no-process-list")
def evaluate(facts: Facts, gpu: Gpu) -> Finding | None:
    if gpu.health.processes is None:
        return not_reported(NAME, facts.nvml, gpu, *CALLS, what="GPU processes")
    users = [process for process in gpu.health.processes if process.kind == "compute"]
    lines, health = [*map(_line, users[:SHOWN])], gpu.health
    # What shows that a GPU is in use although no process is listed.
    if health.memory_used_bytes is not None:
        lines.append(f"GPU memory in use: {health.memory_used_bytes >> 20} MiB")
    if health.gpu_utilization_percent is not None:
        lines.append(f"GPU utilization: {health.gpu_utilization_percent} %")
    subject = about(NAME, gpu, *lines, unit="processes")
    if users and all((user.name or "").endswith(MPS_SERVER) for user in users):
        return subject.warns("gpu.mps-server-running", len(users), 0)
    if users:
        return subject.warns("gpu.processes-running", len(users), 0)
    if container := facts.system.container:
        return subject.skips("gpu.processes-of-the-container", 0, container=container)
    return subject.passes(0)


def _line(process: GpuProcess) -> str:
    used = "memory not reported" if process.memory_bytes is None else f"{process.memory_bytes >> 20} MiB"
    return f"process {process.pid} {process.name or '(name not reported)'}: {used}"


CHECK = Check(NAME, frozenset({"software", "quick"}), evaluate=evaluate, needs=("nvml", "system"))
