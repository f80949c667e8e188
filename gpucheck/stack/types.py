"""Types of this package: the target, its set, and conflicts."""

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from gpucheck.knowledge import GpuModel
from gpucheck.knowledge.packages import Archive
from gpucheck.knowledge.tables import OperatingSystem

if TYPE_CHECKING:
    from gpucheck.stack.spec import StackSpec as StackSpec
    from gpucheck.stack.stack_set import StackSet as StackSet
else:
    # Both are built from the components, so modules below them have their types for annotations only.
    StackSpec = StackSet = Any


# The driver of the specification that is not changed; see ``present``.
KEEP = "keep"


class DriverChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The driver. kernel_module: the flavor. kept: it is the hosts' own and is not managed; omitted otherwise."""

    branch: str
    version: str
    kernel_module: Literal["open", "proprietary"]
    revision: str | None = None
    kept: bool | msgspec.UnsetType = msgspec.UNSET


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Identical hosts. gpus: every GPU of one host, ordered by PCI id; nvswitches None = the PCI bus was not read.

    taken: assumptions made for names of several boards, as text.
    present: the driver of the hosts, if the specification keeps it.
    """

    gpus: tuple[GpuModel, ...]
    os: OperatingSystem
    arch: Literal["x86_64", "sbsa"]
    nvswitches: int | None = None
    taken: tuple[str, ...] = ()
    present: DriverChoice | None = None

    @property
    def models(self) -> tuple[GpuModel, ...]:
        return tuple(dict.fromkeys(self.gpus))


class Fact(msgspec.Struct, frozen=True):
    """A statement and the ids of its sources."""

    fact: str
    source: str


class Clash(msgspec.Struct, frozen=True, kw_only=True):
    """Two facts that contradict each other. rule: the rule that they violate (R1 to R25).

    unknown: there is no contradiction, but the requested version is not in the tables. way: the first thing to try, if
    the rule knows it; empty if only a search finds it.
    """

    component: str
    rule: str
    between: tuple[Fact, Fact]
    because: str
    unknown: bool = False
    way: str = ""


class Conflict(msgspec.Struct, frozen=True, kw_only=True, rename={"try_": "try"}):
    """A conflict: the public contract of exit status 2.

    try_: the nearest change that works, as text. change: the same as values of the specification, empty if
    no value helps.
    """

    between: tuple[Fact, ...]
    because: str
    source: str
    try_: str
    rule: str = ""
    change: dict[str, str] = msgspec.field(default_factory=dict)


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """The reason for a value. confirmed False: it depends on an unconfirmed fact."""

    component: str
    because: str
    rule: str = ""
    source: str = ""
    confirmed: bool = True


Reasons = tuple[Reason, ...]


class TorchChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The torch build. python: its Python version; origin: pypi, or index = PyTorch's wheel index.

    cuda, cudnn, nccl: versions included in the wheel; None for a CPU build.
    """

    version: str
    build: str
    python: str
    origin: str
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None


class TensorflowChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The TensorFlow release and the wheels to pin with it for these GPUs."""

    version: str
    python: str
    constraints: tuple[str, ...] = ()


class Fabric(msgspec.Struct, frozen=True, kw_only=True):
    """Services that the NVLink fabric needs on this host."""

    fabric_manager: bool = False
    subnet_manager: bool = False
    imex: bool = False


class Unconfirmed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row of a plan that no public document shows in the expected place. spec: its name in the plan.

    source: the expected place; omitted from a file if that is one of NVIDIA's repositories.
    """

    component: str
    spec: str
    because: str
    source: str = "cuda-repo"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """No set exists. unknown: no facts contradict, but the host or a version is missing from the tables."""

    conflicts: tuple[Conflict, ...]
    unknown: bool = False


class UnknownInput(LookupError):
    """A GPU, operating system or architecture that is not in the tables."""


class NotProvisioned(UnknownInput):
    """A system that is known, and that gpucheck installs nothing on. advice: what works there."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(f"{message}. {advice[0].upper()}{advice[1:]}.")
        self.because, self.advice = message, advice


class PlanInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a component's plan.

    archive: the distribution's archive that packages come from, None = NVIDIA's repositories.
    """

    target: Target
    stack: Any
    spec: Any
    archive: Archive | None = None

    @property
    def system(self) -> OperatingSystem:
        return self.target.os

    @property
    def apt(self) -> bool:
        return self.target.os.family == "debian"
