"""The measurements of a report as they are read back: what two reports, a site's limits or many hosts compare."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from gpucheck.model.bandwidth import ContentionResult, HostLink, Matrix, MeasuredDevice, MeasuredPair, PeerAccess
from gpucheck.model.collectives import CollectiveResult
from gpucheck.model.compute import ComputeDevice
from gpucheck.model.diagnosis.observations import Observations

COPIES, COMPUTE, COLLECTIVES, TRAINING = "p2p", "compute", "collectives", "smoke-"
# A variant in which a switch may round sums in another order: such runs are compared by tolerance only.
ROUNDED = "nvls"
Measurements = Mapping[str, Any]
Kind = TypeVar("Kind")


class Copies(msgspec.Struct, frozen=True, kw_only=True):
    """What was copied between the GPUs of a host. Fields as in BandwidthReport."""

    engine: str = ""
    kind: str = ""
    devices: tuple[MeasuredDevice, ...] = ()
    pairs: tuple[MeasuredPair, ...] = ()
    matrices: dict[str, Matrix] = {}
    peer_access: PeerAccess | None = None
    host_device: tuple[HostLink, ...] = ()
    crowds: tuple[ContentionResult, ...] = ()
    integrity: dict[str, int] = {}
    method: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    observations: Observations = Observations()

    def bus_id(self, position: int) -> str:
        """Return the bus id of a device by its row; its index if the engine reports no bus id."""
        device = self.devices[position]
        return device.bus_id or str(device.index)


class Computed(msgspec.Struct, frozen=True, kw_only=True):
    """What the GPUs of a host computed. Fields as in ComputeReport."""

    engine: str = ""
    versions: dict[str, str | None] = {}
    gpus: tuple[ComputeDevice, ...] = ()


class Collectives(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of a host. Fields as in CollectivesReport."""

    backend: str = ""
    kind: str = ""
    ranks: int = 0
    results: tuple[CollectiveResult, ...] = ()
    transports: dict[str, int] = {}
    algorithms: dict[str, tuple[str, ...]] = {}
    notes: tuple[str, ...] = ()


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Speed of a training. Fields as in Performance."""

    samples_per_s: tuple[float, ...] = ()
    steps_per_s: float | None = None
    steps_mad_percent: float | None = None
    scaling_efficiency: float | None = None


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """One training of a host. Fields as in SmokeResult; type: of another outcome, ``failure``."""

    type: str = "result"
    framework: str = ""
    strategy: str = ""
    variant: str = ""
    model: str = ""
    precision: str = ""
    data_source: str = ""
    backend: str = ""
    placement: str = ""
    placement_reason: str = ""
    devices: tuple[str, ...] = ()
    device_names: tuple[str | None, ...] = ()
    bus_ids: tuple[str | None, ...] = ()
    world_size: int | None = None
    steps: int | None = None
    batch_per_rank: int | None = None
    seed: int | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    loss_digest: str | None = None
    performance: Pace | None = None
    versions: dict[str, str | None] = {}
    variants: dict[str, "Trained"] = {}


def copies_of(measurements: Measurements) -> Copies | None:
    """Return the copies, of CPU processes too; None if there were none."""
    found = _part(measurements, COPIES, Copies)
    return found if found is not None and found.devices else None


def gpu_copies_of(measurements: Measurements) -> Copies | None:
    """Return the copies, None if there were none, or only between CPU processes."""
    found = copies_of(measurements)
    return None if found is None or found.engine == "cpu" else found


def devices_of(measurements: Measurements) -> tuple[ComputeDevice, ...]:
    """Return what computed, CPU processes too; nothing if nothing did."""
    found = _part(measurements, COMPUTE, Computed)
    return () if found is None else found.gpus


def computed_of(measurements: Measurements) -> Computed | None:
    """Return what GPUs computed, None if none did."""
    found = _part(measurements, COMPUTE, Computed)
    gpus = () if found is None else tuple(gpu for gpu in found.gpus if gpu.is_gpu)
    return msgspec.structs.replace(found, gpus=gpus) if found is not None and gpus else None


def collectives_of(measurements: Measurements) -> Collectives | None:
    """Return the collectives, also those of CPU ranks; None if there were none."""
    found = _part(measurements, COLLECTIVES, Collectives)
    return found if found is not None and found.results else None


def gpu_collectives_of(measurements: Measurements) -> Collectives | None:
    """Return the collectives between GPUs, None if there were none."""
    found = collectives_of(measurements)
    return None if found is None or found.backend != "nccl" else found


def trainings_of(measurements: Measurements) -> Iterator[tuple[str, Trained]]:
    """Yield every training that ended, on CPUs too, with the name of its step. Failures are in the findings."""
    for step in measurements:
        first = _part(measurements, step, Trained) if step.startswith(TRAINING) else None
        for run in (first, *first.variants.values()) if first is not None else ():
            if run.type == "result":
                yield step, run


def trained_of(measurements: Measurements) -> dict[str, Trained]:
    """Return the trainings on GPUs, by name and variant."""
    return {
        " ".join(filter(None, (step.removeprefix(TRAINING), run.variant))): run
        for step, run in trainings_of(measurements)
        if run.placement not in ("", "cpu")
    }


def _part(measurements: Measurements, step: str, kind: type[Kind]) -> Kind | None:
    """Return a step's numbers; None for those of another version or written by hand, as if they were missing."""
    numbers = measurements.get(step)
    try:
        return None if numbers is None else msgspec.convert(numbers, kind, strict=False)
    except (msgspec.ValidationError, ValueError):
        return None
