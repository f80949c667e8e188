"""Processes: does anybody use the GPUs right now?

Source: nvmlDeviceGetComputeRunningProcesses. A busy GPU invalidates every timing, and on a node that should be free it
is a leftover of an earlier job. Inside a container NVML shows no process of other containers.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import each_gpu, not_reported
from gpucheck.model import Check, Finding, Gpu, Host, NvmlFailure, NvmlReading
from gpucheck.model.about import About

NAME = "processes"
SHOWN = 8


def probe(host: Host) -> NvmlReading | NvmlFailure:
    """Ask NVML."""
    return host.nvml()


def evaluate(nvml: NvmlReading | NvmlFailure) -> Iterator[Finding]:
    """One finding a GPU."""
    yield from each_gpu(NAME, nvml, lambda gpu: _judge(nvml, gpu), nothing="no GPU of this host lists its processes")


def _judge(nvml: NvmlReading | NvmlFailure, gpu: Gpu) -> Finding | None:
    if gpu.health.processes is None:
        return not_reported(NAME, nvml, gpu, "nvmlDeviceGetComputeRunningProcesses")
    users = [process for process in gpu.health.processes if process.kind == "compute"]
    lines = [f"process {p.pid} {p.name or ''}: {(p.memory_bytes or 0) >> 20} MiB" for p in users[:SHOWN]]
    about = About(check=NAME, subject=f"gpu:{gpu.pci_bus_id}", unit="processes", evidence=tuple(lines))
    if not users:
        return about.passes(0, 0)
    pids = ", ".join(str(process.pid) for process in users[:SHOWN])
    why = "the GPU is in use: measurements would tell about that job, and on a free node this is a leftover"
    return about.warns(
        len(users), 0, why, f"wait for the job, or look who it is: ps -o user,pid,etime,args -p {pids}", "gpu-busy"
    )


CHECK = Check(NAME, frozenset({"software", "quick"}), probe, evaluate)
