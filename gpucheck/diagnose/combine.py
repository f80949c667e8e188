"""Several sources about one host become one set of observations; contradictions are rejected, not guessed away."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from gpucheck.diagnose._cells import MOST_GPUS
from gpucheck.diagnose.alignment import aligned
from gpucheck.knowledge.strict import InputProblem as ObservationProblem
from gpucheck.model.diagnosis.observations import AcsReading, Collective, Measured, Observations, ObservedGpu
from gpucheck.topology.pcie.acs import REDIRECT

LISTS = ("collectives", "host_device", "flows", "under_load", "damaged", "failures", "uplinks")

S = TypeVar("S", bound=msgspec.Struct)


def together(seen: Observations, new: Observations) -> Observations:
    """Observations with another source's added; where both have a value the first one stays.

    Raises ObservationProblem where the two speak of different machines: other numbers of GPUs, other models or bus
    ids, or more GPUs than one machine has.
    """
    count, other = len(seen.gpus), len(new.gpus)
    if count and other and count != other:
        # A log of a job on some of the GPUs names these by bus id alone; nothing in it counts GPUs by position.
        seen, new = (_unless_bare(seen), new) if count < other else (seen, _unless_bare(new))
        count, other = len(seen.gpus), len(new.gpus)
    if max(other, len(new.matrix or ())) > MOST_GPUS:
        raise ObservationProblem(f"more than {MOST_GPUS} GPUs, which no machine has. Give the matrix of one machine")
    if count and other and count != other:
        raise ObservationProblem(
            f"{other} GPUs here, {count} in what was read before: these are not of one machine. "
            "Give output of one run with the same CUDA_VISIBLE_DEVICES"
        )
    gpus = _gpus(seen.gpus, new.gpus) if count and other else seen.gpus or new.gpus
    return replace(
        _filled(replace(seen, gpus=()), replace(new, gpus=())),
        gpus=gpus,
        environment={**new.environment, **seen.environment},
        measured=_measured(seen.measured, new.measured),
    )


def _unless_bare(one: Observations) -> Observations:
    """Without GPUs of which no more than the bus id is known, and with which nothing was measured by position."""
    bare = all(gpu.bus_id and gpu == ObservedGpu(bus_id=gpu.bus_id) for gpu in one.gpus)
    rest = replace(one, gpus=(), environment={}, measured=replace(one.measured, collectives=()))
    return replace(one, gpus=()) if bare and rest == Observations() else one


def joined(seen: Observations) -> Observations:
    """The transport that a log of NCCL names becomes that of the one collective whose report names none.

    A log alone has a row that holds a transport and nothing else; with several collectives it may be of any of them.
    """
    rows = seen.measured.collectives
    logged = [row.transport for row in rows if row == Collective(transport=row.transport)]
    if not logged:
        return seen
    others = tuple(row for row in rows if row != Collective(transport=row.transport))
    if len(others) == 1 and len(set(logged)) == 1:
        others = (replace(others[0], transport=others[0].transport or logged[0]),)
    return replace(seen, measured=replace(seen.measured, collectives=others))


def listed(seen: Observations, lists: Sequence[Observations]) -> Observations:
    """Observations with what lists of PCI functions add: each GPU is found by its bus id.

    A list may have fewer GPUs than the machine (lspci -s), and more than its driver has. So where GPUs are known their
    number stays; where none is, the lists together are the machine.
    """
    every: dict[str, ObservedGpu] = {}
    for gpu in (gpu for one in lists for gpu in one.gpus):
        bus_id = gpu.bus_id or ""
        every[bus_id] = _filled(every[bus_id], gpu) if bus_id in every else gpu
    found = tuple(sorted(every.values(), key=lambda gpu: gpu.bus_id or ""))[:MOST_GPUS]
    gpus = seen.gpus or (found if not seen.matrix or len(seen.matrix) == len(found) else ())
    if seen.gpus and (rows := aligned(seen.gpus, found)) is not None:
        gpus = tuple(_filled(gpu, row) if row else gpu for gpu, row in zip(seen.gpus, rows, strict=True))
    acs = {row.bus_id: row for one in reversed(lists) for row in one.host.acs if _matters(row, gpus)}
    host = seen.host
    for one in lists:
        host = _filled(host, replace(one.host, acs=()))
    return replace(seen, gpus=gpus, host=replace(host, acs=host.acs or tuple(acs[key] for key in sorted(acs))))


def _matters(row: AcsReading, gpus: Sequence[ObservedGpu]) -> bool:
    """Whether a bridge that redirects can be in the way of two GPUs: below a switch that both are under.

    Where no path is known, every bridge may be. Above the common switch everything goes up, redirected or not.
    """
    if not row.control & REDIRECT:
        return True
    paths = [{port.bus_id for port in gpu.path} for gpu in gpus]
    if not any(paths):
        return len(gpus) > 1
    return any(row.bus_id in one and row.bus_id not in other and one & other for one in paths for other in paths)


def _gpus(here: tuple[ObservedGpu, ...], there: tuple[ObservedGpu, ...]) -> tuple[ObservedGpu, ...]:
    """Each GPU with what the other source adds. The sources list the same number of GPUs."""
    rows = aligned(here, there)
    if rows is None or None in rows:
        raise ObservationProblem("the GPUs have other bus ids than in what was read before: two machines")
    there = tuple(row for row in rows if row is not None)
    for index, (one, other) in enumerate(zip(here, there, strict=True)):
        if one.model and other.model and not _same_model(one.model, other.model):
            raise ObservationProblem(
                f"GPU {index} is {other.model} here and {one.model} in what was read before: two machines"
            )
    return tuple(_filled(one, other) for one, other in zip(here, there, strict=True))


def _same_model(one: str, other: str) -> bool:
    """Tools shorten names (``Tesla T4``, ``T4``; ``NVIDIA H100 80GB HBM3``, ``NVIDIA H100 80GB H...``)."""
    a, b = (set(name.lower().replace("...", "").replace("nvidia", "").split()) for name in (one, other))
    return not a or not b or a <= b or b <= a or "..." in one + other


def _filled(one: S, other: S) -> S:
    """`one` with the values of `other` where it has none, in nested values too."""
    found: dict[str, Any] = {}
    for name in one.__struct_fields__:
        here, there = getattr(one, name), getattr(other, name)
        if isinstance(here, msgspec.Struct) and isinstance(there, type(here)):
            found[name] = _filled(here, there)
        elif name in LISTS and isinstance(here, tuple) and isinstance(there, tuple):
            found[name] = here + tuple(row for row in there if row not in here)
        elif here is None or (here in ((), {}) and there is not None):  # () is a value: compared, and none is bad
            found[name] = there
    return replace(one, **found)


def _measured(one: Measured, other: Measured) -> Measured:
    """Numbers of both; a matrix that both have stays as it was read first, with its own uncertainty."""
    filled = _filled(one, other)
    kept = {
        f"p2p_{way}_{part}": getattr(one, f"p2p_{way}_{part}")
        for way in ("uni", "bidir")
        for part in ("error", "alone")
        if getattr(one, f"p2p_{way}_gb_s") is not None
    }
    return replace(filled, **kept)
