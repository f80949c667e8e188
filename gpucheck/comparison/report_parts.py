"""The parts of a report that are compared, decoded."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from gpucheck.model import Report
from gpucheck.model.bandwidth import HostLink, MeasuredDevice, MeasuredPair
from gpucheck.model.collectives import CollectiveResult
from gpucheck.model.compute import ComputeDevice
from gpucheck.model.record import RECORD, HealthRecord

COPIES, COMPUTE, COLLECTIVES, TRAINING = "p2p", "compute", "collectives", "smoke-"
Kind = TypeVar("Kind")


class Copies(msgspec.Struct, frozen=True, kw_only=True):
    """What was copied between the GPUs of a host. Fields as in BandwidthReport."""

    engine: str = ""
    devices: tuple[MeasuredDevice, ...] = ()
    pairs: tuple[MeasuredPair, ...] = ()
    matrices: dict[str, tuple[tuple[float | None, ...], ...]] = {}
    host_device: tuple[HostLink, ...] = ()

    def bus_id(self, position: int) -> str:
        """Return the bus id of a device by its row; its index if the engine reports no bus id."""
        device = self.devices[position]
        return device.bus_id or str(device.index)


class Computed(msgspec.Struct, frozen=True, kw_only=True):
    """What the GPUs of a host computed. Fields as in ComputeReport."""

    engine: str = ""
    versions: dict[str, str | None] = {}
    gpus: tuple[ComputeDevice, ...] = ()


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of a host. Fields as in CollectivesReport."""

    backend: str = ""
    ranks: int = 0
    results: tuple[CollectiveResult, ...] = ()


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Speed of a training. Fields as in Performance."""

    steps_per_s: float | None = None
    steps_mad_percent: float | None = None


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """One training of a host. Fields as in SmokeResult."""

    variant: str = ""
    model: str = ""
    precision: str = ""
    backend: str = ""
    placement: str = ""
    device_names: tuple[str | None, ...] = ()
    bus_ids: tuple[str | None, ...] = ()
    world_size: int = 0
    steps: int = 0
    batch_per_rank: int = 0
    seed: int | None = None
    loss_digest: str | None = None
    performance: Pace | None = None
    versions: dict[str, str | None] = {}
    variants: dict[str, "Trained"] = {}


def health_of(report: Report) -> HealthRecord | None:
    """Return the record, None if the report is older than that step or the step was skipped."""
    return _part(report, RECORD, HealthRecord)


def copies_of(report: Report) -> Copies | None:
    """Return the copies, None if there were none, or only between CPU processes."""
    found = _part(report, COPIES, Copies)
    return None if found is None or found.engine == "cpu" or not found.devices else found


def computed_of(report: Report) -> Computed | None:
    found = _part(report, COMPUTE, Computed)
    return None if found is None or not any(gpu.is_gpu for gpu in found.gpus) else found


def gathered_of(report: Report) -> Gathered | None:
    """Return the collectives between GPUs, None if there were none."""
    found = _part(report, COLLECTIVES, Gathered)
    return None if found is None or found.backend != "nccl" or not found.results else found


def trained_of(report: Report) -> dict[str, Trained]:
    found: dict[str, Trained] = {}
    for step in report.measurements:
        first = _part(report, step, Trained) if step.startswith(TRAINING) else None
        for run in (first, *first.variants.values()) if first is not None else ():
            if run.placement not in ("", "cpu"):
                found[" ".join(filter(None, (step.removeprefix(TRAINING), run.variant)))] = run
    return found


def changed_settings(then: Trained, now: Trained, keys: Iterable[str]) -> tuple[str, ...]:
    """Return the settings that two trainings do not share, each with both values."""
    return changes(*({key: getattr(run, key) for key in keys} for run in (then, now)))


def changes(then: Mapping[str, object], now: Mapping[str, object]) -> tuple[str, ...]:
    """Return what differs, as ``torch 2.9.1 -> 2.10``."""
    names = (name for name in dict.fromkeys([*then, *now]) if then.get(name) != now.get(name))
    return tuple(f"{name} {_or_none(then.get(name))} -> {_or_none(now.get(name))}" for name in names)


def _or_none(value: object) -> object:
    return "none" if value in (None, "") else value


def _part(report: Report, step: str, kind: type[Kind]) -> Kind | None:
    numbers: Any = report.measurements.get(step)
    if numbers is None:
        return None
    try:
        return msgspec.convert(numbers, kind, strict=False)
    except (msgspec.ValidationError, ValueError):
        return None  # written by another version or by hand: treated as missing
