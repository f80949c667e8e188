"""Link rates and path factors. GB/s is 10**9 bytes per second in one direction, everywhere."""

from typing import Literal

import msgspec

from gpucheck.knowledge._load import Row, table
from gpucheck.knowledge.names import find_gpu


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Fractions of an expected bandwidth below which a measurement is worth a warning, or a failure."""

    warn_below: float
    fail_below: float


class _Pcie(Row, frozen=True, kw_only=True):
    source: str
    gb_s: dict[int, dict[int, float]]


class _Factor(Row, frozen=True, kw_only=True):
    default: float
    intel: float | None = None


class _PciePaths(Limits, frozen=True, kw_only=True):
    source: str
    factor: dict[str, _Factor]


class _BothWays(Row, frozen=True, kw_only=True):
    source: str
    part: float


class _CpuLinks(Row, frozen=True, kw_only=True):
    source: str
    gb_s: dict[str, float]


class NvLinkRate(Row, frozen=True, kw_only=True):
    """One NVLink: its generation and its payload in one direction."""

    generation: int
    gb_s: float


class _NvLink(Row, frozen=True, kw_only=True):
    source: str
    by_compute_capability: dict[str, NvLinkRate]


class _NvLinkPaths(Limits, frozen=True, kw_only=True):
    source: str
    ce: dict[int, float]
    sm: dict[int, float]


Spread = tuple[float, float, float]
"""Median, spread between machines and spread between numbers of one machine (deviations of the natural logarithm)."""


class Predictions(Row, frozen=True, kw_only=True):
    """What each kind of copy reaches, as Spread: parts of the raw rate, microseconds for latency_us."""

    source: str
    direct: dict[str, Spread]
    direct_both_ways: Spread
    staged: Spread
    staged_shared_uplink: Spread
    staged_unknown_uplink: Spread
    staged_across_sockets: Spread
    staged_both_ways: Spread
    redirected: Spread
    translated: Spread
    poor: Spread
    slow_both_ways: Spread
    nvlink: Spread
    nvlink_unknown_engine: Spread
    nvlink_both_ways: Spread
    host_copy: Spread
    host_copy_far: Spread
    latency_us: dict[str, Spread]


class _Links(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    schema_: Literal["gpucheck.knowledge.links/1"]
    as_of: str
    pcie: _Pcie
    pcie_paths: _PciePaths
    both_ways: _BothWays
    cpu_links: _CpuLinks
    nvlink: _NvLink
    nvlink_paths: _NvLinkPaths
    predictions: Predictions


def _links() -> _Links:
    return table("links.yml", _Links)


def predictions() -> Predictions:
    """Medians and spreads that a diagnosis predicts numbers with."""
    return _links().predictions


def pcie_gb_s(generation: int, width: int) -> float:
    """Raw rate of a PCIe link in one direction after line coding, headers not taken off.

    Raises LookupError for a generation or width that PCI Express does not have.
    """
    try:
        return _links().pcie.gb_s[generation][width]
    except KeyError:
        raise LookupError(f"no PCIe link of generation {generation} and width x{width} is known") from None


def pcie_factor(path_class: str, *, intel: bool = False) -> float:
    """Part of the slowest hop's raw rate that a peer-to-peer copy should reach on a PIX, PXB, PHB, NODE or SYS path.

    intel: the path crosses an Intel host bridge, which cuts peer traffic into 64-byte packets.
    Raises LookupError for any other class (``NV2`` is not a PCIe path).
    """
    try:
        factor = _links().pcie_paths.factor[path_class]
    except KeyError:
        raise LookupError(f"{path_class!r} is not a PCIe path class") from None
    return factor.intel if intel and factor.intel is not None else factor.default


def pcie_limits() -> Limits:
    """When a PCIe measurement below its expectation becomes a WARN, and a FAIL."""
    return _links().pcie_paths


def both_ways_part() -> float:
    """Part of a pair's one-way limit that each direction must keep while both copy at once."""
    return _links().both_ways.part


def cpu_link_gb_s() -> dict[str, float]:
    """Planning bandwidth between two sockets by CPU generation: a lower bound for one flow, never a ceiling."""
    return dict(_links().cpu_links.gb_s)


def nvlink_rate(gpu: str) -> NvLinkRate:
    """NVLink generation and payload per link of a compute capability (``9.0``) or a GPU name.

    Raises LookupError where that GPU has no NVLink or is not known: no rate is ever assumed.
    """
    rates = _links().nvlink.by_compute_capability
    if gpu in rates:
        return rates[gpu]
    model = find_gpu(gpu)
    if model is None:
        raise LookupError(f"{gpu!r} is neither a compute capability with NVLink nor a known GPU")
    if model.nvlink is None:
        raise LookupError(f"{model.name} has no NVLink")
    return NvLinkRate(generation=model.nvlink.generation, gb_s=model.nvlink.gb_s_per_link)


def nvlink_factor(generation: int, engine: Literal["ce", "sm"] = "ce") -> float:
    """Part of links x payload that copy engines (``ce``) or kernels (``sm``) reach. Raises LookupError."""
    paths = _links().nvlink_paths
    factors = paths.ce if engine == "ce" else paths.sm
    try:
        return factors[generation]
    except KeyError:
        raise LookupError(f"no path factor is known for NVLink generation {generation}") from None


def nvlink_limits() -> Limits:
    """When an NVLink measurement below its expectation becomes a WARN, and a FAIL."""
    return _links().nvlink_paths
