"""machine.txt: every answer of the simulated NVML library as ``key = value``. A key left out is NOT_SUPPORTED.

nvml/simulator.h defines what a value may be besides a number or a text.
"""

from collections.abc import Iterator

from gpucheck.simulator.answers.identity import identity, mig
from gpucheck.simulator.answers.links import links
from gpucheck.simulator.answers.state import state
from gpucheck.simulator.machine import Machine, SimulatedGpu
from gpucheck.simulator.machine.paths import CAPABILITIES, common_ancestor, p2p_status
from gpucheck.simulator.machine.profile import cuda_versions

HOPPER = 9  # nvmlDeviceArchitecture_t


def answers(machine: Machine) -> str:
    """The text of machine.txt for the GPUs that NVML can see, renumbered without gaps as the driver does."""
    visible = [gpu for gpu in machine.gpus if gpu.visible]
    lines = {"profile": machine.profile.name, "gpu.count": str(len(visible))}
    lines |= {f"cuda.{branch}": str(version) for branch, version in cuda_versions().items()}
    lines |= {key: str(value) for key, value in _host(visible)}
    for index, gpu in enumerate(visible):
        own = dict(identity(machine, gpu, index)) | dict(state(machine, gpu)) | dict(links(machine, gpu))
        own |= dict(_pairs(machine, gpu, visible)) | dict(mig(gpu))
        lines |= {f"gpu.{index}.{key}": str(value) for key, value in (own | gpu.nvml).items()}
    lines |= machine.nvml
    head = "# SIMULATED machine: what libnvidia-ml.so.1 answers here. An absent key is NOT_SUPPORTED.\n"
    return head + "".join(f"{key} = {value}\n" for key, value in lines.items())


def _host(visible: list[SimulatedGpu]) -> Iterator[tuple[str, object]]:
    """What the GPUs share: confidential computing, off, where a GPU knows it; the names of processes."""
    if any(gpu.model.architecture >= HOPPER for gpu in visible):
        for what in ("environment", "feature", "dev_tools", "multi_gpu", "cpu", "gpus", "ready"):
            yield f"confidential.{what}", 0
    if any(gpu.model.architecture == HOPPER and gpu.model.fabric is not None for gpu in visible):
        yield "nvlink.bandwidth_mode", 0
    for gpu in visible:
        yield from ((f"process.{process.pid}.name", process.name) for process in gpu.processes)


def _pairs(machine: Machine, gpu: SimulatedGpu, visible: list[SimulatedGpu]) -> Iterator[tuple[str, object]]:
    for index, other in enumerate(visible):
        yield f"ancestor.{index}", common_ancestor(machine, gpu, other)
        if other is not gpu:
            yield from ((f"p2p.{index}.{cap}", p2p_status(gpu, other, cap)) for cap in CAPABILITIES)
            for cap in CAPABILITIES if gpu.model.fabric is not None else ():
                yield f"p2p.{index}.{cap}.no_fabric", p2p_status(gpu, other, cap, fabric=False)
