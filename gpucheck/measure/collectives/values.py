"""What ranks are told and what they leave behind, as JSON files of one folder."""

from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

# Environment variable of ranks that torchrun starts: the process that they end with.
AGENT = "GPUCHECK_AGENT_PID"
ErrorKind = Literal["collective", "defect", "no-resources", "no-device"]


class RankSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One run. bus_ids: of the GPUs by local rank, empty on CPUs. file_store: False where torchrun set the rendezvous.

    iterations: collectives a sample; samples: each of them with one checked collective before it.
    """

    backend: Literal["nccl", "gloo"]
    operations: tuple[str, ...]
    sizes: tuple[int, ...]
    bus_ids: tuple[str, ...] = ()
    file_store: bool = True
    warm_ups: int = 5
    iterations: int = 20
    samples: int = 7
    timeout_s: float = 60.0
    parent_pid: int = 0


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One collective at one size. seconds: of each sample's mean, the slowest rank's. wrong: elements, of all ranks."""

    operation: str
    size: int
    seconds: tuple[float, ...] = ()
    checked: int = 0
    wrong: int = 0


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank that finished says. All ranks say the same of the results."""

    rank: int
    world_size: int
    device: str
    device_name: str | None
    versions: dict[str, str | None]
    measured: tuple[Measured, ...]


class RankError(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank raised, and when (Unix time). message: whole. missing: the module that was not found.

    kind: what failed: the collective; the program itself; memory, disk or files that ran out; the way to the GPU.
    """

    type: str
    message: str
    missing: str | None = None
    kind: ErrorKind = "collective"
    raised: float = 0.0


class Folder(NamedTuple):
    """The private folder of one run on one host; ranks are global."""

    path: Path

    @property
    def spec(self) -> Path:
        """RankSpec."""
        return self.path / "spec.json"

    def at(self, rank: int) -> Path:
        """Where the rank is, one line, overwritten."""
        return self.path / f"at-{rank}"

    def pid(self, rank: int) -> Path:
        """Its process id, there as soon as it can be asked for its stack."""
        return self.path / f"pid-{rank}"

    def stack(self, rank: int) -> Path:
        """Where the rank's stacks are written when they are asked for, and on a crash."""
        return self.path / f"stack-{rank}.txt"

    def report(self, rank: int) -> Path:
        """RankReport."""
        return self.path / f"report-{rank}.json"

    def error(self, rank: int) -> Path:
        """RankError."""
        return self.path / f"error-{rank}.json"
