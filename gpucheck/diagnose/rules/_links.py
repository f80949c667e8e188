"""Why one GPU's own PCIe link is slow: told by its registers where they were read, else by what the number fits."""

from typing import NamedTuple

from msgspec.structs import replace

from gpucheck.diagnose._rule import Confidence, Diagnosis
from gpucheck.diagnose.machine import Machine, rate_of
from gpucheck.model.observations import Port

# Part of a link's raw rate that a copy reaches: below the first the link is not the limit, above the second it
# cannot be.
FITS_FROM, FITS_TO = 0.60, 0.97
FULL_WIDTH = 16


class LinkCause(NamedTuple):
    """cause: a key. words: what points at it. settled: told by a register, not by a number."""

    cause: str
    confidence: Confidence
    words: str
    settled: bool = False


def narrowed(port: Port) -> bool:
    """Fewer lanes than both ends have."""
    return bool(port.width and port.max_width and port.width < port.max_width)


def slowed(port: Port) -> bool:
    """A lower generation than both ends can do; means nothing when it was read on an idle link."""
    return bool(port.gen and port.max_gen and port.gen < port.max_gen)


def words(port: Port) -> str:
    """``Gen3 x8 of Gen4 x16``."""
    now = f"Gen{port.gen or '?'} x{port.width or '?'}"
    return f"{now} of Gen{port.max_gen or '?'} x{port.max_width or '?'}"


def contradicted(port: Port, proven: float) -> bool:
    """More was seen to pass than the link as read could carry: it was read idle."""
    most = rate_of(port.gen or port.max_gen, port.width or port.max_width)
    return most is not None and proven > most * FITS_TO


def together(m: Machine, found: list[Diagnosis]) -> list[Diagnosis]:
    """All GPUs at the same wrong link have one cause: a BIOS setting, a backplane."""
    alike = {(d.finding.cause, d.finding.seen, d.finding.wanted) for d in found}
    if m.count < 2 or len(found) < m.count or len(alike) > 1:
        return found
    one = replace(
        found[0].finding,
        subject="host",
        why=f"all {m.count} GPUs alike: {found[0].finding.why}; look for one setting (BIOS, riser type, backplane)",
        evidence=tuple(f"{d.finding.subject}: {line}" for d in found for line in d.finding.evidence),
    )
    return [Diagnosis(one, frozenset().union(*(d.explains for d in found)))]


def cause_of(machine: Machine, i: int, reached: float) -> LinkCause:
    """What makes GPU i slow with everyone, when `reached` (GB/s one way) is the most that passed its link."""
    gpu = machine.gpu(i)
    chipset = next((port for port in gpu.path if port.kind == "chipset"), None)
    if chipset is not None:
        return LinkCause("gpu-behind-chipset", "likely", f"its path crosses the chipset ({chipset.bus_id})", True)
    own = [port for port in gpu.path if len(machine.behind(port)) <= 1]
    for port, name in ((gpu.pcie, "its link"), *((port, f"the port above it ({port.bus_id})") for port in own)):
        if narrowed(port) and not contradicted(port, reached):
            return LinkCause("pcie-width-reduced", "certain", f"{name} runs at {words(port)} lanes", True)
        if slowed(port) and not contradicted(port, reached):
            sure: Confidence = "certain" if port.read == "load" else "likely"
            if port.read == "load" or _fits(rate_of(port.gen, port.width or machine.link(i).max_width), reached):
                return LinkCause("pcie-link-downgraded", sure, f"{name} runs at {words(port)}", True)
    return _by_number(machine, i, reached)


def _fits(raw: float | None, reached: float) -> bool:
    return raw is not None and FITS_FROM * raw <= reached <= FITS_TO * raw


def _by_number(machine: Machine, i: int, reached: float) -> LinkCause:
    pcie, most = machine.gpu(i).pcie, machine.link(i)
    full_speed = pcie.read == "load" and pcie.gen is not None and pcie.gen == pcie.max_gen
    full_width = pcie.width is not None and pcie.width == pcie.max_width
    if full_speed and full_width:
        return LinkCause("gpu-behind-chipset", "possible", "its own link is complete, so something above it is slow")
    width = most.max_width or FULL_WIDTH
    fits = [
        (generation, lanes)
        for generation in range(1, (most.max_generation or 5) + 1)
        for lanes in (1, 2, 4, 8, 16)
        if lanes <= width and _fits(rate_of(generation, lanes), reached)
    ]
    slower = [g for g, lanes in fits if lanes == width and g != most.max_generation]
    fewer = [lanes for g, lanes in fits if lanes < width and g == (most.max_generation or g)]
    if full_speed or (fewer and not slower) or reached < FITS_FROM * (rate_of(1, width) or 0.0):
        return LinkCause("pcie-width-reduced", "likely", f"fits {_narrow(fits)}: fewer lanes than x{width}")
    if full_width or (slower and not fewer):
        return LinkCause("pcie-link-downgraded", "likely", f"fits {_named(fits)}: a lower generation")
    return LinkCause(
        "pcie-link-downgraded",
        "possible",
        f"fits {_named(fits)}: a lower generation, fewer lanes, or a chipset in between"
        if fits
        else "fits no lower generation or width exactly: its link, its root port or what is above it",
    )


def _narrow(fits: list[tuple[int, int]]) -> str:
    """The two fastest links that the number fits: lanes get lost more often than generations."""
    best = sorted(fits, key=lambda link: -link[0])[:2]
    return " or ".join(f"Gen{generation} x{lanes}" for generation, lanes in best) or "less than any x1 link"


def _named(fits: list[tuple[int, int]]) -> str:
    """The widest two links that the number fits."""
    best = sorted(fits, key=lambda link: -link[1])[:2]
    return " or ".join(f"Gen{generation} x{lanes}" for generation, lanes in best) or "less than any x1 link"
