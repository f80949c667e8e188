"""Words and numbers shared by all views."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from gpucheck.model import Finding, Simulation, TopologyGpu, Verdict, where

# From here on the digits of a number are in groups of three.
GROUPED = 10_000
WORST_FIRST = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN, Verdict.SKIP, Verdict.PASS)


def figure(value: float) -> str:
    """``382``, ``24.1``, ``3.08``: as many digits as a bandwidth or a latency is worth."""
    size = abs(value)
    if size >= 1e6:
        return f"{value:.3g}"
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def describe_simulation(simulation: Simulation | None) -> str:
    """Return ``p100-pcie-x2, pcie-width:gpu=1,width=8``; empty without a simulation."""
    return ", ".join((simulation.profile, *simulation.faults)) if simulation else ""


def list_versions(versions: Mapping[str, str | None]) -> list[str]:
    """Return ``driver 580.95.05`` for each version that is known."""
    return [f"{name} {version}" for name, version in versions.items() if version]


def count_models(gpus: Iterable[TopologyGpu], unnamed: str = "unnamed GPU") -> list[str]:
    """Return ``8 x NVIDIA H100 80GB HBM3`` for each model. unnamed: what a GPU without a name is called."""
    names = [gpu.name or unnamed for gpu in gpus]
    return [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]


def describe_size(size: int) -> str:
    """Return ``4 KiB`` (powers of 1024, as memory is counted); bytes if it is not a whole number of a larger unit."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def value(finding: Finding, which: object, *, bare: bool = False) -> str:
    """A seen or wanted value with its unit, 1 link but 2 links. bare: a noun as unit is left out."""
    if which is None:
        return "unknown"
    if isinstance(which, bool):
        return "yes" if which else "no"
    if not isinstance(which, int | float):
        return str(which)
    unit = finding.unit or ""
    if _is_noun(unit):
        unit = "" if bare else unit if which != 1 else _singular(unit)
    return f"{number(which)} {unit}".rstrip()


def number(value: float) -> str:
    """``600``, ``371.23`` and ``135,533,568``: no exponent, no ``.0``, and digits that can be read."""
    if math.isfinite(value) and value == int(value):
        return f"{value:,.0f}" if abs(value) >= GROUPED else f"{value:.0f}"
    return f"{value:,.0f}" if abs(value) >= GROUPED * 100 else f"{value:.6g}"


def plural(count: int, noun: str) -> str:
    """``1 pair``, ``56 pairs``."""
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def counted_names(names: Iterable[str]) -> str:
    """Return each name once, with how often it is there: ``bar1 (8), iommu``."""
    return ", ".join(f"{name} ({count})" if count > 1 else name for name, count in Counter(names).items())


def observed(finding: Finding) -> str:
    """What is wrong, for the first line: ``17 NVLinks active, expected 18``; the reason where nothing was seen."""
    if finding.seen is None and finding.why:
        return finding.why
    seen = value(finding, finding.seen)
    if finding.verdict in (Verdict.PASS, Verdict.SKIP) or finding.wanted is None:
        return seen
    counted = isinstance(finding.seen, int | float) and not isinstance(finding.seen, bool)
    return f"{seen}, expected {value(finding, finding.wanted, bare=counted)}"


def headline(finding: Finding) -> str:
    """Return ``GPU 2 (0000:4c:00.0): 17 NVLinks active, expected 18``."""
    return ": ".join(filter(None, (where(finding), observed(finding))))


def _is_noun(unit: str) -> bool:
    """Whether the unit counts things (links, GPUs, NVLinks active) and is not a symbol (W, MHz, us)."""
    first = unit.partition(" ")[0]
    return len(first) > 3 and first.isalpha() and first.endswith("s")


def _singular(unit: str) -> str:
    first, space, rest = unit.partition(" ")
    return (first.removesuffix("es") if first.endswith("sses") else first.removesuffix("s")) + space + rest


def counts_line(counts: Mapping[str, int]) -> str:
    """``1 fail, 3 pass``: worst first, zeros left out."""
    return ", ".join(f"{counts[v.value]} {v.value}" for v in WORST_FIRST if counts.get(v.value)) or "nothing evaluated"
