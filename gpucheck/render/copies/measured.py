"""What a report's measurements hold, as values: copies between GPUs, and training runs."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

import msgspec

from gpucheck.model import Report
from gpucheck.model.bandwidth import (
    BandwidthReport,
    ContentionResult,
    HostLink,
    Matrix,
    MeasuredDevice,
    MeasuredPair,
    PeerAccess,
)
from gpucheck.model.diagnosis.observations import Observations

COPIES = "p2p"
HOST_BOTH = "host both ways"  # and the number of the GPU: name of its copies from and to host memory at once


class Copies(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a BandwidthReport that a report keeps. Fields as there."""

    kind: str
    devices: tuple[MeasuredDevice, ...]
    pairs: tuple[MeasuredPair, ...] = ()
    matrices: dict[str, Matrix] = {}
    peer_access: PeerAccess | None = None
    host_device: tuple[HostLink, ...] = ()
    crowds: tuple[ContentionResult, ...] = ()
    integrity: dict[str, int] = {}
    method: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    observations: Observations = Observations()

    @property
    def host_rows(self) -> Iterator[tuple[str, float | None, float | None]]:
        """A label with GB/s from and to host memory: of each GPU's own NUMA node, by kernel, of each node measured."""
        for link in self.host_device:
            name = str(self.devices[link.device].index)
            yield name, link.h2d_gb_s, link.d2h_gb_s
            if link.h2d_kernel_gb_s or link.d2h_kernel_gb_s:
                yield f"{name} by kernel", link.h2d_kernel_gb_s, link.d2h_kernel_gb_s
            yield from ((f"{name}, NUMA node {node.node}", node.h2d_gb_s, node.d2h_gb_s) for node in link.by_node)

    @property
    def crowd_lines(self) -> Iterator[str]:
        """A line for each set of copies at the same time; GPUs with copies from and to host memory share one."""
        both = sorted(result.total_gb_s for result in self.crowds if result.name.startswith(HOST_BOTH))
        if both:
            yield f"from and to host at once, one device at a time: {span(both, '.1f')} GB/s together"
        for result in self.crowds:
            if not result.name.startswith(HOST_BOTH):
                alone = f" (with one copy at a time {result.alone_gb_s:.1f})" if result.alone_gb_s is not None else ""
                yield (
                    f"contention, {result.name}: {result.copies} simultaneous copies, {result.total_gb_s:.1f} GB/s "
                    f"together{alone}, the slowest {result.slowest_gb_s:.1f} GB/s"
                    f"{': ' if result.reason else ''}{result.reason}"
                )


class ClassRates(NamedTuple):
    """Ordered pairs of one path class with one expectation. GB/s, one direction."""

    cls: str
    pairs: int
    slowest: float
    middle: float
    fastest: float
    low: float | None
    expected: float | None
    high: float | None
    basis: str | None


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """Of a training run. Fields as in the training room's Performance."""

    samples_per_s: tuple[float, ...] = ()
    scaling_efficiency: float | None = None


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a training run that a report shows. step: the name of the step that ran it."""

    step: str
    framework: str
    strategy: str
    variant: str = ""
    model: str = ""
    precision: str = ""
    placement_reason: str = ""
    devices: tuple[str, ...] = ()
    world_size: int = 0
    steps: int = 0
    loss_first: float | None = None
    loss_last: float | None = None
    performance: Speed | None = None


def copies(report: Report) -> Copies | None:
    """What was copied; None where nothing was."""
    numbers = report.measurements.get(COPIES)
    return None if numbers is None else msgspec.convert(numbers, Copies, strict=False)


def copies_of(report: BandwidthReport) -> Copies:
    """Return the same parts of a report of copies alone."""
    return Copies(**{name: getattr(report, name) for name in Copies.__struct_fields__})


def by_class(found: Copies) -> list[ClassRates]:
    """Return one row for equal pairs."""
    equal: dict[tuple[str | None, float | None, str | None], list[tuple[MeasuredPair, float]]] = {}
    for pair in found.pairs:
        if pair.measured is not None:
            key = (pair.cls, pair.expected_gb_s, pair.basis)
            equal.setdefault(key, []).append((pair, pair.measured.gb_s))
    return [_rates(cls or "?", members) for (cls, _, _), members in equal.items()]


def _rates(cls: str, members: list[tuple[MeasuredPair, float]]) -> ClassRates:
    pair, rates = members[0][0], [rate for _, rate in members]
    return ClassRates(
        cls=cls,
        pairs=len(members),
        slowest=min(rates),
        middle=median(rates),
        fastest=max(rates),
        low=pair.low_gb_s,
        expected=pair.expected_gb_s,
        high=pair.high_gb_s,
        basis=pair.basis,
    )


def span(ordered: Sequence[float], form: str) -> str:
    """``10.9 to 18.2``, and one number where both ends read the same."""
    return " to ".join(dict.fromkeys((format(ordered[0], form), format(ordered[-1], form))))


def trainings(report: Report) -> list[Training]:
    """Return every completed run, in the order of the steps. Failures are in the findings."""
    return [run for step, numbers in report.measurements.items() if step != COPIES for run in _runs(step, numbers)]


def _runs(step: str, numbers: dict[str, Any]) -> Iterator[Training]:
    variants: dict[str, dict[str, Any]] = numbers.get("variants", {})
    for run in (numbers, *variants.values()):
        if run.get("type") == "result":
            yield msgspec.convert({**run, "step": step}, Training, strict=False)


def peer_words(access: PeerAccess) -> dict[tuple[int, int], str]:
    """Return what CUDA offers of each ordered pair of places, with NVML's status: ``yes OK``."""
    cells = {
        (i, j): (offered, access.nvml[i][j] if access.nvml else None)
        for i, row in enumerate(access.cuda)
        for j, offered in enumerate(row)
        if i != j
    }
    return {
        place: f"{'?' if offered is None else 'yes' if offered else 'no'}{f' {status}' if status else ''}"
        for place, (offered, status) in cells.items()
    }
