"""Which backend and device each rank uses, decided from what the framework sees. Pure."""

from typing import NamedTuple

from gpucheck.model.smoke import Placement, SmokeResult
from gpucheck.printable import counted


class NoDevice(RuntimeError):
    """The framework sees no device that it could train on, and has no CPU form."""


class RankPlacement(NamedTuple):
    """backend: torch.distributed's name. reason: for the reader of the report."""

    placement: Placement
    backend: str
    reason: str

    def device(self, rank: int) -> str:
        """``cpu`` or ``cuda:<index>``."""
        if self.placement == "cpu":
            return "cpu"
        return f"cuda:{rank if self.placement == 'gpus' else 0}"


def devices_used(used: int, visible: int) -> str:
    """``8 CUDA devices``, or ``2 of 8 CUDA devices`` where the others do not take part."""
    return f"{used} of {visible} CUDA devices" if used < visible else counted(visible, "CUDA device")


def plan(
    world_size: int, *, visible_gpus: int, build_cuda: str | None, build: str, nccl: bool, mig: bool = False
) -> RankPlacement:
    """Real GPUs where there are enough, one shared GPU where there is one, the CPU otherwise, and why.

    mig: each rank has a MIG instance of its own, of which it sees no other.
    visible_gpus: what the framework sees; build_cuda: the CUDA version it was built for, None for a CPU build;
    build: the framework's full version; nccl: whether the build carries NCCL.
    """
    if build_cuda is None:
        return RankPlacement("cpu", "gloo", f"torch {build} is a build without CUDA")
    if visible_gpus == 0:
        return RankPlacement("cpu", "gloo", f"torch {build} (CUDA {build_cuda}) sees no CUDA device on this host")
    if mig:
        # No peer access between instances, and NCCL does not use them.
        return RankPlacement("mig", "gloo", f"{world_size} MIG instances: gloo moves the gradients through host memory")
    if visible_gpus < world_size:
        # NCCL rejects two ranks on one GPU, so gloo carries the traffic through host memory.
        return RankPlacement(
            "shared-gpu", "gloo", f"{visible_gpus} CUDA device for {world_size} ranks: they share cuda:0"
        )
    if not nccl:
        return RankPlacement(
            "gpus", "gloo", f"torch {build} carries no NCCL: gloo moves the gradients through host memory"
        )
    return RankPlacement("gpus", "nccl", devices_used(world_size, visible_gpus))


def not_across_gpus(result: SmokeResult) -> str:
    """Return the code for why a run that is not placed on several GPUs was not."""
    if result.placement != "cpu":
        return "training.across-instances" if result.placement == "mig" else "training.across-one-gpu"
    return "training.across-no-cuda" if result.versions.get("cuda") is None else "training.across-no-gpu"
