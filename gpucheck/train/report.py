"""The report of one rank that finished, as it leaves it in the run directory."""

import msgspec

from gpucheck.model.smoke import Checkpoint, Copy, Placement, Reference, Repeat

# Key of versions: the wheels with CUDA's libraries that tensorflow[and-cuda] installs. tensorflow alone is built for
# CUDA, does not install them, and then computes on the CPU.
CUDA_WHEELS = "CUDA wheels"


class RankDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device that took part. name: the framework's. bus_id: of its GPU, as in sysfs; None on the CPU."""

    name: str
    model: str | None = None
    bus_id: str | None = None


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """One step's gradients as a rank sent them and got them back, as sums over them with random signs.

    A sum with fixed signs is linear: that of the average must be the average of the ranks' own. None stands for "not a
    number". norm: Euclidean norm of what was sent, which scales the rounding.
    """

    sent: tuple[float | None, ...]
    received: tuple[float | None, ...]
    norm: float | None


class RankReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Report of one rank that finished.

    devices: its own; all of them for a process that drives several.
    losses: the rank's own loss at every step; None stands for "not a number".
    gradient_hashes: SHA-256 of the averaged gradients at every step, empty where gradients are spread over the ranks.
    data_hash: SHA-256 over every sample it was fed, in order.
    sums: by step, empty where the strategy has no all-reduce of its own to check.
    compute_seconds: by step, without communication and comparisons. overlap: share of the communication during which
    the rank still computed, None if unknown. memory_kept_bytes: what a second training left more than
    the first. communication: how the phase was distinguished. seconds: by phase; samples and samples_seconds cover all
    steps but the first, without the comparisons.
    """

    rank: int
    world_size: int
    model: str
    backend: str
    placement: Placement
    placement_reason: str
    devices: tuple[RankDevice, ...]
    losses: tuple[float | None, ...] = ()
    gradient_hashes: tuple[str, ...] = ()
    data_hash: str = ""
    data_source: str = "synthetic"
    sums: tuple[Sums, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    accuracy: float | None = None
    held_out: int = 0
    references: tuple[Reference, ...] = ()
    repeat: Repeat | None = None
    memory_kept_bytes: int | None = None
    copies: tuple[Copy, ...] = ()
    compute_seconds: tuple[float, ...] = ()
    overlap: float | None = None
    communication: str = ""
    seconds: dict[str, float]
    samples: int = 0
    samples_seconds: float = 0.0
    versions: dict[str, str | None]
