"""The Prometheus text format, for node_exporter's textfile collector.

Source: Prometheus exposition formats and metric naming; the collector allows no timestamps and wants a newline at the
end. Base units, counters end in _total.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from gpucheck.render.words import one_line

Kind = Literal["gauge", "counter"]


class Family(NamedTuple):
    """One metric with its samples: labels and value."""

    name: str
    help: str
    samples: Iterable[tuple[Mapping[str, str], float]]
    kind: Kind = "gauge"


def write(families: Iterable[Family]) -> str:
    """HELP, TYPE and samples of each family; a family without samples is left out, a value that is no number too."""
    lines: list[str] = []
    for family in families:
        samples = [_sample(family.name, labels, value) for labels, value in family.samples if math.isfinite(value)]
        if samples:
            told = family.help.replace("\\", r"\\").replace("\n", r"\n")
            lines += [f"# HELP {family.name} {told}", f"# TYPE {family.name} {family.kind}", *dict.fromkeys(samples)]
    return "\n".join(lines) + "\n"


def metric_name(words: str) -> str:
    """A legal metric name from any words."""
    return re.sub(r"[^a-zA-Z0-9_]+", "_", words).strip("_")


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    number = f"{int(value)}" if value == int(value) and abs(value) < 1e15 else f"{value:.9g}"
    return f"{name}{{{inside}}} {number}" if inside else f"{name} {number}"


def _escaped(text: str) -> str:
    return one_line(text).replace("\\", r"\\").replace('"', r"\"")
