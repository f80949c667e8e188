"""Options of a smoke test: plain values that its ranks get as JSON."""

from typing import Literal, NamedTuple, get_args

import msgspec

from gpucheck.model.smoke import Placement, Rejection, SmokeLimits
from gpucheck.printable import counted
from gpucheck.processes.ranks import rank as ranks
from gpucheck.processes.ranks.nodes import Nodes

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
PRECISIONS: tuple[str, ...] = get_args(Precision)

# Compute capability from which the hardware has the format. Source: CUDA C++ programming guide, arithmetic throughput.
_SINCE = {"fp32": (0, 0), "fp16": (6, 0), "tf32": (8, 0), "bf16": (8, 0)}

# Largest difference from the single-process reference after 40 steps. A weight gradient is a sum over the samples: in
# 8 or 11 significant bits, two sums of 64 differ from one of 128 by up to 2^-8 or 2^-11 of its size, in every step.
TOLERANCE = {"fp32": 1e-4, "tf32": 5e-3, "bf16": 4e-2, "fp16": 1e-2}


def unsupported(precision: str, capability: str | None) -> str | None:
    """Why a device cannot train in a precision and what can be done instead; None where it can.

    capability: compute capability such as ``6.0``; None is a CPU.
    """
    if capability is None:
        if precision != "tf32":
            return None
        return "tf32 is a mode of GPUs from compute capability 8.0 on and does nothing on a CPU: take fp32 or bf16"
    major, _, minor = capability.partition(".")
    usable = [name for name in PRECISIONS if (int(major), int(minor or 0)) >= _SINCE[name]]
    if precision in usable:
        return None
    since = ".".join(map(str, _SINCE[precision]))
    others = " or ".join(usable)
    return f"{precision} needs compute capability {since} or newer, this GPU has {capability}: take {others}"


class TrainingFault(msgspec.Struct, frozen=True, kw_only=True):
    """Fault of a rank on entering a phase of a step: for tests, and for simulated machines.

    rank: None is every rank. slow holds for the whole run, flip-bit damages one step's all-reduce; the others act on
    entering the phase, in that step if one is given. factor: how many times as long a slow rank computes.
    """

    kind: Literal["hang", "die", "flip-bit", "slow"]
    rank: int | None = 1
    phase: str = "forward"
    step: int | None = None
    factor: int = 2


MIN_STEPS = 10


class SmokeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One smoke test.

    world_size: devices that take part, over all hosts. variant: one of the strategy's, empty where it has none.
    visible_devices: CUDA_VISIBLE_DEVICES of the ranks, None leaves the caller's; empty keeps the run on the CPU.
    mig_uuids: the MIG instance of each rank of this host; CUDA shows a process one of them.
    steps: optimizer steps, 10 or more (fewer cannot show that the loss falls).
    data: a directory with the MNIST idx files, None for the synthetic set.
    timeout_s: from the moment at which every rank has its first step behind it; enforced from outside the ranks.
    start_s: added before that, for imports and contexts; 0 counts the start too. first_s: the longest phase before that
    moment, where it is longer than stall_s: kernels that the driver compiles.
    stall_s: once every rank trains, the longest that all of them together may go without entering a new phase.
    check_every: parameters and optimizer state are compared across ranks after every that many steps, and at the end.
    """

    framework: str = "torch"
    strategy: str = "ddp"
    variant: str = ""
    model: str = "mlp"
    precision: Precision = "fp32"
    world_size: int = 2
    visible_devices: str | None = None
    mig_uuids: tuple[str, ...] = ()
    steps: int = 40
    batch_per_rank: int = 64
    seed: int = 20240229
    data: str | None = None
    check_every: int = 5
    timeout_s: float = 60.0
    start_s: float = 0.0
    first_s: float = 0.0
    stall_s: float = 30.0
    nodes: Nodes | None = None
    limits: SmokeLimits = SmokeLimits()
    fault: TrainingFault | None = None


def fault_of(options: SmokeOptions, rank: int) -> TrainingFault | None:
    fault = options.fault
    return fault if fault is not None and fault.rank in (None, rank) else None


RankSpec = ranks.RankSpec[SmokeOptions]


class Rejected(RuntimeError):
    """A rank found that it cannot train on its device. kind: the reason; the text is for people only.

    no-device: the framework sees none that it could train on, and has no CPU form.
    """

    def __init__(self, kind: Rejection | Literal["no-device"], text: str) -> None:
        super().__init__(text)
        self.kind = kind


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
    through_host = "gloo moves the gradients through host memory"
    if mig:
        # No peer access between instances, and NCCL does not use them.
        return RankPlacement("mig", "gloo", f"{world_size} MIG instances: {through_host}")
    if visible_gpus < world_size:
        # NCCL rejects two ranks on one GPU, so gloo carries the traffic through host memory.
        why = f"{visible_gpus} CUDA device for {world_size} ranks: they share cuda:0"
        return RankPlacement("shared-gpu", "gloo", why)
    if not nccl:
        return RankPlacement("gpus", "gloo", f"torch {build} carries no NCCL: {through_host}")
    return RankPlacement("gpus", "nccl", devices_used(world_size, visible_gpus))
