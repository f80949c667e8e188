"""Store equal values of many reports once: ten thousand rows differ in a few numbers and hardly in text."""

from collections.abc import Hashable
from typing import TypeVar, cast

from msgspec.structs import replace

from gpucheck.model import Finding, FleetRow, HostMetric

# Shared values appear early and often. Beyond this limit values are kept per host: to remember them costs memory.
MAX_KNOWN = 50_000
Same = TypeVar("Same", bound=Hashable)
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Interner:
    """Hands out one object for all that are equal. Rows come out equal to what went in."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Hashable] = {}
        self._counts: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
        self._indexes: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}

    def row(self, row: FleetRow) -> FleetRow:
        """Return the row; what is identical in earlier rows is shared with them."""
        return replace(
            row,
            simulation=self._one(row.simulation),
            system=self._one(row.system),
            driver=self._one(row.driver),
            gpus=self._one(row.gpus),
            training=self._one(row.training),
            group=self._one(row.group),
            counts=_known(self._counts, tuple(row.counts.items()), row.counts),
            problems=tuple(map(self._finding, row.problems)),
            gpu_index=_known(self._indexes, tuple(row.gpu_index.items()), row.gpu_index),
            stand_ins=self._words(row.stand_ins),
            attributes={self._one(name): self._words(found) for name, found in row.attributes.items()},
            metrics={self._one(name): self._metric(metric) for name, metric in row.metrics.items()},
        )

    def _one(self, value: Same) -> Same:
        return cast("Same", _known(self._known, value, value))

    def _words(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Words may differ by one among many, as the GPUs of a host do: each is shared, and the whole."""
        known = self._known.get(words)
        return self._one(tuple(map(self._one, words))) if known is None else cast("tuple[str, ...]", known)

    def _metric(self, metric: HostMetric) -> HostMetric:
        """Most are settings, the same on every host; of measurements at least the places are identical."""
        known = self._known.get(metric)
        if known is not None:
            return cast("HostMetric", known)
        if metric.gpu_at is None and metric.pair_at is None:
            return self._one(metric)
        gpu_at, pair_at, low = self._one(metric.gpu_at), self._one(metric.pair_at), self._one(metric.low)
        return self._one(replace(metric, gpu_at=gpu_at, pair_at=pair_at, low=low))

    def _finding(self, finding: Finding) -> Finding:
        """Its texts. Not the whole, nor what was seen: to Python 8, 8.0 and True are one, to a reader they are not."""
        return replace(
            finding,
            check=self._one(finding.check),
            subject=self._one(finding.subject),
            because_of=self._one(finding.because_of),
            because_of_subject=self._one(finding.because_of_subject),
            unit=self._one(finding.unit),
            cause=self._one(finding.cause),
            why=self._one(finding.why),
            fix=self._one(finding.fix),
        )


def _known(table: dict[Key, Value], key: Key, value: Value) -> Value:
    """What the table holds for the key; the value itself, from now on, where that is nothing yet and there is room."""
    return table.setdefault(key, value) if len(table) < MAX_KNOWN else table.get(key, value)
