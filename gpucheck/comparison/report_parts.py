"""The parts of a report that are compared, decoded."""

from typing import Any, TypeVar

import msgspec

from gpucheck.model import Report
from gpucheck.model.bandwidth import HostLink, MeasuredDevice, MeasuredPair
from gpucheck.model.record import RECORD, HealthRecord

COPIES = "p2p"
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


def health_of(report: Report) -> HealthRecord | None:
    """Return the record, None if the report is older than that step or the step was skipped."""
    return _part(report, RECORD, HealthRecord)


def copies_of(report: Report) -> Copies | None:
    """Return the copies, None if there were none, or only between CPU processes."""
    found = _part(report, COPIES, Copies)
    return None if found is None or found.engine == "cpu" or not found.devices else found


def _part(report: Report, step: str, kind: type[Kind]) -> Kind | None:
    numbers: Any = report.measurements.get(step)
    if numbers is None:
        return None
    try:
        return msgspec.convert(numbers, kind, strict=False)
    except (msgspec.ValidationError, ValueError):
        return None  # written by another version or by hand: treated as missing
