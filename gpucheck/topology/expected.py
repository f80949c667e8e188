"""The expected bandwidth of a copy between two GPUs: links x payload rate x path factor, with the basis as text.

Rates and factors are in gpucheck.knowledge. GB/s is 10**9 bytes per second, one direction.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from gpucheck.knowledge import (
    NvLinkRate,
    cpu_link_gb_s,
    nvlink_factor,
    nvlink_limits,
    nvlink_rate,
    pcie_factor,
    pcie_gb_s,
    pcie_limits,
)
from gpucheck.model.host.hardware import Expected, Gpu, PcieLink
from gpucheck.topology.pcie.cpu import Cpu

WAY = {
    "PIX": "same switch",
    "PXB": "switches below one host bridge",
    "PHB": "same host bridge",
    "NODE": "between host bridges of a NUMA node",
    "SYS": "between NUMA nodes",
}


class Hop(NamedTuple):
    """A link on the path between two GPUs, named by the PCI device at its lower end."""

    bus_id: str
    link: PcieLink


class _Rate(NamedTuple):
    gb_s: float
    generation: int
    width: int
    bus_id: str


def expected(cls: str | None, a: Gpu, b: Gpu, hops: Iterable[Hop], cpu: Cpu | None = None) -> Expected | None:
    """Return the expected bandwidth of a pair of class `cls`; None if a rate is unknown.

    hops: every PCIe link on the way that could be read. cpu: None means any CPU is possible, which widens the range.
    low_gb_s is where a measurement becomes a WARN; high_gb_s is the line rate, which nothing can exceed.
    """
    if cls is None or cls == "X":
        return None
    if cls.startswith("NV"):
        return nvlink_expected(int(cls[2:]), slower(_nvlink(a), _nvlink(b)))
    return pcie_expected(cls, list(hops), cpu)


@lru_cache(maxsize=256)
def nvlink_expected(links: int, rate: NvLinkRate | None) -> Expected | None:
    """Return links x payload x the copy engine (CE) factor of that NVLink generation."""
    if rate is None:
        return None
    try:
        factor = nvlink_factor(rate.generation, "ce")
    except LookupError:
        return None
    line = links * rate.gb_s
    plural = "s" if links != 1 else ""
    return Expected(
        unidirectional_gb_s=_round(line * factor),
        low_gb_s=_round(line * factor * nvlink_limits().warn_below),
        high_gb_s=_round(line),
        basis=f"{links} NVLink{plural} of generation {rate.generation} x {rate.gb_s:g} GB/s x {factor:.2f} copy engine",
    )


def _nvlink(gpu: Gpu) -> NvLinkRate | None:
    return gpu_nvlink(gpu.compute_capability) or gpu_nvlink(gpu.name)


def gpu_nvlink(key: str | None) -> NvLinkRate | None:
    """Return the link rate of a compute capability or GPU name, None if it has no NVLink or is unknown."""
    try:
        return nvlink_rate(key) if key else None
    except LookupError:
        return None


def slower(a: NvLinkRate | None, b: NvLinkRate | None) -> NvLinkRate | None:
    """Return the rate that both ends support, None if one is unknown."""
    return min(a, b, key=lambda rate: rate.gb_s) if a and b else None


def narrowest(hops: Iterable[Hop]) -> str | None:
    """Return the bus id of the slowest known link, None if all are equally fast."""
    known = [rate for rate in map(_rate, hops) if rate is not None]
    slowest = min(known, key=lambda rate: rate.gb_s, default=None)
    if slowest is None or all(rate.gb_s == slowest.gb_s for rate in known):
        return None
    return slowest.bus_id


def pcie_expected(cls: str, hops: list[Hop], cpu: Cpu | None) -> Expected | None:
    """Return the rate of the slowest link x the factor of the path class; None if a link is unknown."""
    rates = [_rate(hop) for hop in hops]
    known = [rate for rate in rates if rate is not None]
    if not known or len(known) < len(rates):
        return None
    slowest = min(known, key=lambda rate: rate.gb_s)
    uneven = any(rate.gb_s > slowest.gb_s for rate in known)
    return _through(cls, slowest if uneven else slowest._replace(bus_id=""), uneven, cpu)


@lru_cache(maxsize=1024)
def _through(cls: str, slowest: _Rate, uneven: bool, cpu: Cpu | None) -> Expected | None:
    """Cached: a large host has thousands of pairs of few kinds."""
    try:
        factor, worst = pcie_factor(cls, intel=bool(cpu and cpu.intel)), pcie_factor(cls, intel=cpu is None)
    except LookupError:
        return None
    low, note = min(factor, worst) * slowest.gb_s * pcie_limits().warn_below, ""
    if cls == "SYS":
        low, note = _across_sockets(low, cpu)
    elif worst < factor:
        note = f"; low end as on an Intel host bridge ({worst:.2f}), the CPU is not known"
    return Expected(
        unidirectional_gb_s=_round(slowest.gb_s * factor),
        low_gb_s=_round(low),
        high_gb_s=_round(slowest.gb_s),
        basis=f"PCIe Gen{slowest.generation} x{slowest.width} {slowest.gb_s:g} GB/s x {factor:.2f} {WAY[cls]}"
        + (f" (narrowest link: {slowest.bus_id})" if uneven else "")
        + note,
    )


def _across_sockets(low: float, cpu: Cpu | None) -> tuple[float, str]:
    """The socket link is shared and its planning figure a lower bound, never a ceiling."""
    links = cpu_link_gb_s()
    if cpu is not None and cpu.link in links:
        return min(low, links[cpu.link]), f"; low end: socket link of {cpu.link}, {links[cpu.link]:g} GB/s"
    slowest = min(links.values())
    return min(low, slowest), f"; low end: slowest socket link known, {slowest:g} GB/s, that of this CPU is not"


def _rate(hop: Hop) -> _Rate | None:
    """Return the maximum rate: an idle GPU lowers the current generation of its link to save power."""
    generation = hop.link.max_generation or hop.link.generation
    width = hop.link.max_width or hop.link.width
    if generation is None or width is None:
        return None
    try:
        return _Rate(pcie_gb_s(generation, width), generation, width, hop.bus_id)
    except LookupError:
        return None


def _round(gb_s: float) -> float:
    return round(gb_s, 2)
