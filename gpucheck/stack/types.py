"""The nouns of this room: what is resolved for, what comes out, and why it could not."""

from typing import Literal

import msgspec

from gpucheck.knowledge import GpuModel
from gpucheck.knowledge.tables import OperatingSystem


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of host. gpus: every GPU of it, ordered by PCI id; nvswitches None = the PCI bus was not read.

    taken: what was taken for granted where a name means several boards, in words.
    """

    gpus: tuple[GpuModel, ...]
    os: OperatingSystem
    arch: Literal["x86_64", "sbsa"]
    nvswitches: int | None = None
    taken: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[GpuModel, ...]:
        """Each model once, in order."""
        return tuple(dict.fromkeys(self.gpus))


class Fact(msgspec.Struct, frozen=True):
    """A statement and the ids of the sources it was read in."""

    fact: str
    source: str


class Clash(msgspec.Struct, frozen=True, kw_only=True):
    """Two facts that cannot both hold. rule: which rule says so (R1 to R25).

    unknown: nothing clashes, but the tables do not know what is asked for. way: what to do first, where the rule
    knows it; empty where only trying other values tells.
    """

    component: str
    rule: str
    between: tuple[Fact, Fact]
    because: str
    unknown: bool = False
    way: str = ""


class Conflict(msgspec.Struct, frozen=True, kw_only=True, rename={"try_": "try"}):
    """A refusal: the outside contract of exit status 2.

    try_: the nearest change that works, as text. change: the same as values of the specification, empty if none helps.
    """

    between: tuple[Fact, ...]
    because: str
    source: str
    try_: str
    rule: str = ""
    change: dict[str, str] = msgspec.field(default_factory=dict)


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a value is what it is. confirmed False: the decision rests on something not confirmed."""

    component: str
    because: str
    rule: str = ""
    source: str = ""
    confirmed: bool = True


class DriverChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The driver. kernel_module: the flavour."""

    branch: str
    version: str
    kernel_module: Literal["open", "proprietary"]
    revision: str | None = None


class TorchChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The torch build. python: with which Python; origin: pypi, or index = PyTorch's own wheel index.

    cuda, cudnn, nccl: what the wheel brings along; None for a CPU build.
    """

    version: str
    build: str
    python: str
    origin: str
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None


class TensorflowChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The TensorFlow release and what must be pinned beside it for these GPUs."""

    version: str
    python: str
    constraints: tuple[str, ...] = ()


class Fabric(msgspec.Struct, frozen=True, kw_only=True):
    """What connects the GPUs' NVLinks needs on this host."""

    fabric_manager: bool = False
    subnet_manager: bool = False
    imex: bool = False


class Unconfirmed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something of a plan that no public document shows where the plan expects it. spec: as the plan names it.

    source: where it would be; left out of a file where that is one of NVIDIA's repositories.
    """

    component: str
    spec: str
    because: str
    source: str = "cuda-repo"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """No set exists. unknown: not because facts clash, but because the tables do not know the host or a version."""

    conflicts: tuple[Conflict, ...]
    unknown: bool = False


class UnknownInput(LookupError):
    """A GPU, operating system or architecture that the tables do not know."""
