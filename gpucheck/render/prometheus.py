"""The Prometheus text format, for node_exporter's textfile collector.

Source: Prometheus exposition formats and metric naming; the collector allows no timestamps and wants a newline at the
end. Base units, counters end in _total.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from gpucheck.printable import one_line

Kind = Literal["gauge", "counter"]


class Family(NamedTuple):
    """One metric with its samples: labels and value."""

    name: str
    help: str
    samples: Iterable[tuple[Mapping[str, str], float]]
    kind: Kind = "gauge"


def write(families: Iterable[Family]) -> str:
    """Write HELP, TYPE and samples of each family; omit a family without samples and a value that is not a number.

    Of two families with one name, and of two samples with the same labels, the first stands: one double would cost the
    collector the whole file.
    """
    lines: list[str] = []
    written: set[str] = set()
    for family in families:
        if family.name in written:
            continue
        written.add(family.name)
        samples: dict[str, str] = {}
        for labels, value in family.samples:
            if math.isfinite(value):
                samples.setdefault(_series(family.name, labels), _number(value))
        if samples:
            help_text = family.help.replace("\\", r"\\").replace("\n", r"\n")
            lines += [
                f"# HELP {family.name} {help_text}",
                f"# TYPE {family.name} {family.kind}",
                *map(" ".join, samples.items()),
            ]
    return "\n".join(lines) + "\n"


def metric_name(words: str) -> str:
    """A legal metric name from any words."""
    return re.sub(r"[^a-zA-Z0-9_]+", "_", words).strip("_")


def _series(name: str, labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}}" if inside else name


def _number(value: float) -> str:
    return f"{int(value)}" if value == int(value) and abs(value) < 1e15 else f"{value:.9g}"


def _escaped(text: str) -> str:
    return one_line(text).replace("\\", r"\\").replace('"', r"\"")
