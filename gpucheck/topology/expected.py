"""What a copy reaches on a machine without a fault: link rate x part of it that is usual, with the basis as text.

The one model of rates: expectations before measuring, matrices, and the evaluation of numbers all use it. Rates and
parts are in gpucheck/knowledge/links.yml. GB/s is 10**9 bytes per second, one direction.
"""

from collections.abc import Iterable
from functools import lru_cache
from math import exp, log
from typing import Literal, NamedTuple

from gpucheck.knowledge import GpuC2c, NvLinkRate, healthy_rates, nvlink_factor, nvlink_rate, pcie_gb_s
from gpucheck.model.host.hardware import Gpu, PcieLink
from gpucheck.model.host.wiring import Expected, TopologyGpu
from gpucheck.topology.pcie import INTEL

# A number is healthy down to so many deviations below the median: nineteen of twenty healthy machines reach it.
HEALTHY = -1.64
FAR = -2.6  # one healthy machine of two hundred is below it


class Hop(NamedTuple):
    """A link on the path between two GPUs, named by the PCI device at its lower end."""

    bus_id: str
    link: PcieLink


Named = Gpu | TopologyGpu
Kind = tuple[str | int | None, ...]
Alike = tuple[Kind, float]


class Healthy(NamedTuple):
    """What a copy reaches on machines without a fault.

    gb_s: median. spread: standard deviation of the natural logarithm. line: the rate that nothing exceeds. vague: path
    or wiring is not known, so this is several kinds of machines. least: the far end of the slowest of them. kind: of
    path; basis: how gb_s follows, as text.
    """

    gb_s: float
    spread: float
    line: float
    kind: Kind
    basis: str
    vague: bool = False
    least: float | None = None

    @property
    def alike(self) -> Alike:
        """What copies have in common that are compared with each other: kind of path and rate."""
        return self.kind, self.gb_s

    @property
    def low(self) -> float:
        return self.gb_s * exp(HEALTHY * self.spread)

    @property
    def far(self) -> float:
        """What next to no healthy machine is below, GB/s."""
        return self.least or self.gb_s * exp(FAR * self.spread)


class _Rate(NamedTuple):
    gb_s: float
    generation: int
    width: int
    bus_id: str


def nvlink_copy(links: int, rate: NvLinkRate | None, engine: Literal["ce", "sm"] | None = "ce") -> Healthy | None:
    """Return what a copy over these NVLinks reaches; None if their rate is unknown.

    engine: copy engines, or kernels; None if it is not known which of the two copied.
    """
    if rate is None or not links:
        return None
    try:
        factor = nvlink_factor(rate.generation, "sm" if engine == "sm" else "ce")
    except LookupError:
        return None
    rates, line = healthy_rates(), links * rate.gb_s
    median, spread = rates.nvlink if engine == "ce" else rates.nvlink_unknown_engine
    engines = {"ce": "copy engine", "sm": "kernel", None: "copy engine or kernel"}[engine]
    plural = "s" if links != 1 else ""
    basis = (
        f"{links} NVLink{plural} of generation {rate.generation} x {rate.gb_s:g} GB/s x {factor * median:.2f} {engines}"
    )
    return Healthy(line * factor * median, spread, line, ("nvlink", links, engine), basis)


def peer_copy(cls: str | None, generation: int, width: int, *, intel: bool = False) -> Healthy | None:
    """Return what a peer copy over PCIe reaches whose slowest link is this one; None if no such link exists.

    cls: PIX, PXB, PHB, NODE or SYS; None if the path is not known. intel: it crosses an Intel host bridge.
    """
    try:
        raw = pcie_gb_s(generation, width)
    except LookupError:
        return None
    rates, known = healthy_rates(), cls in healthy_rates().direct
    median, spread = rates.direct[cls if cls and known else "unknown"]
    median = rates.direct_intel.get(cls or "", median) if intel else median
    basis = f"PCIe Gen{generation} x{width} {raw:g} GB/s x {median:.2f} ({cls if known else 'path not known'})"
    kind = (cls if known else None, generation, width)
    found = Healthy(raw * median, spread, raw, kind, basis, vague=not known)
    slowest = None if known else peer_copy("SYS", generation, width, intel=intel)
    return found._replace(least=slowest.far) if slowest else found


def c2c_copy(c2c: GpuC2c) -> Healthy:
    """Return what the slower direction between a GPU and its Grace CPU reaches."""
    median, spread = c2c.reached
    basis = f"NVLink-C2C {c2c.gb_s:g} GB/s x {median:.2f} (to host memory)"
    return Healthy(c2c.gb_s * median, spread, c2c.gb_s, ("c2c",), basis)


def both_directions(one_way: Healthy, *, nvlink: bool) -> Healthy:
    rates = healthy_rates()
    part, spread = rates.nvlink_both_ways if nvlink else rates.direct_both_ways
    gb_s, line = 2 * one_way.gb_s * part, 2 * one_way.line
    basis = f"2 x {one_way.basis} x {part:g} both ways"
    return one_way._replace(
        gb_s=gb_s, spread=(spread**2 + one_way.spread**2) ** 0.5, line=line, basis=basis, least=None
    )


def both_ways_expected(cls: str | None, one_way: Expected) -> tuple[float, float]:
    """Return what both directions at once reach together, and the low end of it, GB/s."""
    spread = log(one_way.unidirectional_gb_s / one_way.low_gb_s) / -HEALTHY
    healthy = Healthy(one_way.unidirectional_gb_s, spread, one_way.high_gb_s, (cls,), one_way.basis)
    found = both_directions(healthy, nvlink=(cls or "").startswith("NV"))
    return found.gb_s, found.low


def expected(cls: str | None, a: Named, b: Named, hops: Iterable[Hop], cpu: str | None = None) -> Expected | None:
    """Return the expected bandwidth of a pair of class `cls`; None if a rate is unknown.

    hops: every PCIe link on the way that could be read. cpu: its vendor, None if it is not known.
    """
    if cls is None or cls == "X":
        return None
    if cls.startswith("NV"):
        rates = [gpu_nvlink(gpu.compute_capability) or gpu_nvlink(gpu.name) for gpu in (a, b)]
        return nvlink_expected(int(cls[2:]), slower(*rates))
    return pcie_expected(cls, list(hops), cpu)


@lru_cache(maxsize=256)
def nvlink_expected(links: int, rate: NvLinkRate | None) -> Expected | None:
    return _expected(nvlink_copy(links, rate))


def gpu_nvlink(key: str | None) -> NvLinkRate | None:
    try:
        return nvlink_rate(key) if key else None
    except LookupError:
        return None


def slower(a: NvLinkRate | None, b: NvLinkRate | None) -> NvLinkRate | None:
    return min(a, b, key=lambda rate: rate.gb_s) if a and b else None


def narrowest(hops: Iterable[Hop]) -> str | None:
    """Return the bus id of the slowest known link, None if all are equally fast."""
    known = [rate for rate in map(_rate, hops) if rate is not None]
    slowest = min(known, key=lambda rate: rate.gb_s, default=None)
    if slowest is None or all(rate.gb_s == slowest.gb_s for rate in known):
        return None
    return slowest.bus_id


def pcie_expected(cls: str, hops: list[Hop], cpu: str | None) -> Expected | None:
    rates = [_rate(hop) for hop in hops]
    known = [rate for rate in rates if rate is not None]
    if not known or len(known) < len(rates) or cls not in healthy_rates().direct:
        return None
    slowest = min(known, key=lambda rate: rate.gb_s)
    narrowest = slowest.bus_id if any(rate.gb_s > slowest.gb_s for rate in known) else ""
    return _over(cls, slowest.generation, slowest.width, cpu == INTEL, narrowest)


@lru_cache(maxsize=1024)
def _over(cls: str, generation: int, width: int, intel: bool, narrowest: str) -> Expected | None:
    """Cached: a large host has thousands of pairs of few kinds."""
    found = peer_copy(cls, generation, width, intel=intel)
    if found and narrowest:
        found = found._replace(basis=f"{found.basis} (narrowest link: {narrowest})")
    return _expected(found)


def _expected(healthy: Healthy | None) -> Expected | None:
    if healthy is None:
        return None
    return Expected(
        unidirectional_gb_s=round(healthy.gb_s, 2),
        low_gb_s=round(healthy.low, 2),
        high_gb_s=round(healthy.line, 2),
        basis=healthy.basis,
    )


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
