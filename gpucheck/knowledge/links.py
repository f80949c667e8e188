"""Link rates and path factors. GB/s is 10**9 bytes per second in one direction, everywhere."""

from typing import Literal

import msgspec

from gpucheck.knowledge._load import TableRow, table
from gpucheck.knowledge.gpus import find_gpu


class _Pcie(TableRow, frozen=True, kw_only=True):
    source: str
    gb_s: dict[int, dict[int, float]]


class NvLinkRate(TableRow, frozen=True, kw_only=True):
    """One NVLink: its generation and its payload in one direction."""

    generation: int
    gb_s: float


class _NvLink(TableRow, frozen=True, kw_only=True):
    source: str
    by_compute_capability: dict[str, NvLinkRate]


class _NvLinkPaths(TableRow, frozen=True, kw_only=True):
    source: str
    ce: dict[int, float]
    sm: dict[int, float]


Spread = tuple[float, float]
"""Median and spread (standard deviation of the natural logarithm)."""


class HealthyRates(TableRow, frozen=True, kw_only=True):
    """What each kind of copy reaches on machines without a fault, as parts of the raw rate; direct_intel: medians."""

    source: str
    direct: dict[str, Spread]
    direct_intel: dict[str, float]
    direct_both_ways: Spread
    nvlink: Spread
    nvlink_unknown_engine: Spread
    nvlink_both_ways: Spread
    staged: Spread
    staged_shared_uplink: Spread
    staged_across_sockets: Spread
    host_copy: Spread
    host_copy_far: Spread


class _Links(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    schema_: Literal["gpucheck.knowledge.links/1"]
    as_of: str
    pcie: _Pcie
    nvlink: _NvLink
    nvlink_paths: _NvLinkPaths
    healthy: HealthyRates


def _links() -> _Links:
    return table("links.yml", _Links)


def healthy_rates() -> HealthyRates:
    """Return medians and spreads of copies on machines without a fault."""
    return _links().healthy


def pcie_gb_s(generation: int, width: int) -> float:
    """Raw rate of a PCIe link in one direction after line coding, headers not taken off.

    Raises LookupError for a generation or width that PCI Express does not have.
    """
    try:
        return _links().pcie.gb_s[generation][width]
    except KeyError:
        raise LookupError(f"no PCIe link of generation {generation} and width x{width} is known") from None


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
