"""Several sources about one host become one set of observations; contradictions are rejected, not guessed away."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from gpucheck.diagnose.read import MOST_GPUS
from gpucheck.knowledge.strict import InputProblem as ObservationProblem
from gpucheck.model.diagnosis.observations import AcsReading, Collective, Measured, Observations, ObservedGpu
from gpucheck.topology.pcie.acs import REDIRECT

RATES = tuple(f"{path}_{way}_gb_s" for path in ("p2p", "staged") for way in ("uni", "bidir"))
CELLS = ("matrix", "p2p_access", "p2p_status", *RATES)
LISTS = ("collectives", "host_device", "flows", "under_load", "damaged", "failures", "uplinks")

# Two tools, or two directions, differ by less on a healthy link (copy engines and kernels: 0.80 on NVLink).
SAME_RATE = 0.75

S = TypeVar("S", bound=msgspec.Struct)


def together(seen: Observations, new: Observations) -> Observations:
    """Observations with another source's added; where both have a value the first one stays (see `contradictions`).

    A source of some of the machine's GPUs is placed by bus ids. Raises ObservationProblem where the two speak of
    different machines: other models or bus ids, more GPUs than one machine has, or GPUs that cannot be placed.
    """
    seen, new = fitted(seen, new)
    gpus = _gpus(seen.gpus, new.gpus) if seen.gpus and new.gpus else seen.gpus or new.gpus
    return replace(
        _filled(replace(seen, gpus=()), replace(new, gpus=())),
        gpus=gpus,
        environment={**new.environment, **seen.environment},
        measured=_measured(seen.measured, new.measured),
    )


def fitted(seen: Observations, new: Observations) -> tuple[Observations, Observations]:
    """Both with as many GPUs as the larger has, each in its own place. Raises ObservationProblem."""
    count, other = len(seen.gpus), len(new.gpus)
    if max(other, len(new.matrix or ())) > MOST_GPUS:
        raise ObservationProblem(f"more than {MOST_GPUS} GPUs, which no machine has. Give the matrix of one machine")
    if not count or not other:
        return seen, new
    if count == other:
        order = _places(new.gpus, seen.gpus)
        return seen, new if order is None or order == tuple(range(count)) else spread(new, order, count)
    few, many = sorted((seen, new), key=lambda one: len(one.gpus))
    places = _places(few.gpus, many.gpus)
    if places is not None:
        few = spread(few, places, len(many.gpus))
    elif _is_unplaced(few):
        # A log or a collective on some of the GPUs: nothing in it counts GPUs by position.
        few = replace(few, gpus=())
    else:
        raise ObservationProblem(
            f"{other} GPUs here, {count} in what was read before: these are not of one machine, or no bus id places "
            "the ones among the others. Give output of one run with the same CUDA_VISIBLE_DEVICES"
        )
    return (few, many) if count < other else (many, few)


def _places(few: Sequence[ObservedGpu], many: Sequence[ObservedGpu]) -> tuple[int, ...] | None:
    """Return the index of each GPU among the others; None unless bus ids name all."""
    at = {gpu.bus_id: i for i, gpu in enumerate(many)}
    found = [at.get(gpu.bus_id) for gpu in few if gpu.bus_id]
    if not have_bus_ids(many) or len(set(found)) < len(few) or None in found:
        return None
    return tuple(i for i in found if i is not None)


def _is_unplaced(one: Observations) -> bool:
    """Whether a source names GPUs with which nothing was measured by position."""
    bare = all(gpu == ObservedGpu(bus_id=gpu.bus_id, model=gpu.model) for gpu in one.gpus)
    rest = replace(one, gpus=(), environment={}, measured=replace(one.measured, collectives=()))
    return bare and rest == Observations()


def contradictions(seen: Observations, new: Observations) -> tuple[str, ...]:
    """Return what two sources of one machine state differently, as text. Raises ObservationProblem as `together`."""
    one, other = fitted(seen, new)
    found = [
        *_differing("path class", _cells(one.matrix), _cells(other.matrix)),
        *_differing("P2P status", _cells(one.p2p_status), _cells(other.p2p_status)),
        *_differing("P2P access", _access(one), _access(other)),
        *_slower(one.measured, other.measured),
    ]
    links = [(a.nvlinks.active, b.nvlinks.active) for a, b in zip(one.gpus, other.gpus, strict=False)]
    found += [f"NVLinks of GPU {i}: {a} and {b}" for i, (a, b) in enumerate(links) if None not in (a, b) and a != b]
    widths = [(a.pcie.width, b.pcie.width) for a, b in zip(one.gpus, other.gpus, strict=False)]
    found += [f"PCIe width of GPU {i}: {a} and {b}" for i, (a, b) in enumerate(widths) if None not in (a, b) and a != b]
    hosts = [(name, getattr(one.host, name), getattr(other.host, name)) for name in ("iommu", "acs_redirect", "rebar")]
    found += [f"{name}: {a} and {b}" for name, a, b in hosts if None not in (a, b) and a != b]
    return tuple(found)


Cells = dict[tuple[int, int], Any]


def _cells(rows: Sequence[Sequence[Any]] | None) -> Cells:
    """The cells that hold a value, by pair."""
    return {(i, j): cell for i, row in enumerate(rows or ()) for j, cell in enumerate(row) if cell is not None}


def _access(one: Observations) -> Cells:
    count = len(one.gpus)
    if isinstance(one.p2p_access, bool):
        return {(i, j): one.p2p_access for i in range(count) for j in range(count) if i != j}
    return _cells(one.p2p_access)


def _differing(what: str, one: Cells, other: Cells) -> list[str]:
    pairs = [pair for pair in one if pair in other and one[pair] != other[pair]]
    return [f"{what} of GPU {i}-{j}: {one[i, j]} and {other[i, j]}" for i, j in pairs]


def _slower(one: Measured, other: Measured) -> list[str]:
    found = []
    for name in RATES:
        here, there = _cells(getattr(one, name)), _cells(getattr(other, name))
        pairs = [pair for pair in here if pair in there]
        apart = [p for p in pairs if min(here[p], there[p]) < SAME_RATE * max(here[p], there[p])]
        found += [f"{name} of GPU {i}-{j}: {here[i, j]:g} and {there[i, j]:g}" for i, j in apart]
    return found


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
    """`one` with the values of `other` where it has none, in nested values and cells of a matrix too."""
    found: dict[str, Any] = {}
    for name in one.__struct_fields__:
        here, there = getattr(one, name), getattr(other, name)
        if isinstance(here, msgspec.Struct) and isinstance(there, type(here)):
            found[name] = _filled(here, there)
        elif name in CELLS and isinstance(here, tuple) and isinstance(there, tuple) and len(here) == len(there):
            rows = (zip(*both, strict=True) for both in zip(here, there, strict=True))
            found[name] = tuple(tuple(b if a is None else a for a, b in row) for row in rows)
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


# The index of a GPU in another source's order, wherever one stands.
ONE, SOME, PAIRS = "gpu", "gpus", ("pairs", "integrity_bad_pairs")


def have_bus_ids(gpus: Iterable[ObservedGpu]) -> bool:
    """Whether every GPU is identified by its PCI bus id."""
    return all(gpu.bus_id for gpu in gpus)


def aligned(
    machine: Sequence[ObservedGpu], found: Sequence[ObservedGpu], by_index: Mapping[int, ObservedGpu] | None = None
) -> tuple[ObservedGpu | None, ...] | None:
    """Return what a source reports of each GPU of a machine; None for a GPU that it does not list.

    GPUs are matched by bus id if all of both have one, else by position if the numbers are equal, else by the
    index that the source prints if it lists fewer. None if nothing identifies them.
    by_index: the source's GPUs by the machine's index, if it prints one.
    """
    by_bus = {gpu.bus_id: gpu for gpu in found}
    if have_bus_ids((*machine, *found)) and len(by_bus) == len(found):
        return tuple(by_bus.get(gpu.bus_id) for gpu in machine)
    if len(machine) == len(found):
        return tuple(found)
    if by_index is not None and len(found) < len(machine):
        return tuple(by_index.get(index) for index in range(len(machine)))
    return None


def spread(seen: Observations, places: Sequence[int], count: int) -> Observations:
    """Return observations of some of a machine's GPUs as such of all `count`; places: the index of each of them.

    "All pairs" becomes all pairs of these; "every pair was compared, and none is bad" does not cover the others.
    """
    gpus = [ObservedGpu()] * count
    for place, gpu in zip(places, seen.gpus, strict=True):
        gpus[place] = gpu
    if isinstance(seen.p2p_access, bool):
        seen = replace(seen, p2p_access=((seen.p2p_access,) * len(places),) * len(places))
    if seen.measured.integrity_bad_pairs == () and len(places) < count:
        seen = replace(seen, measured=replace(seen.measured, integrity_bad_pairs=None, bytes_compared=None))
    moved: Observations = _moved(replace(seen, gpus=()), places, count)
    return replace(moved, gpus=tuple(gpus))


def _moved(value: Any, places: Sequence[int], count: int) -> Any:
    """A struct with every index in it moved, and every matrix enlarged."""
    found: dict[str, Any] = {}
    for name in value.__struct_fields__:
        inner = getattr(value, name)
        if name == ONE:
            found[name] = places[inner]
        elif name == SOME:
            found[name] = tuple(places[i] for i in inner)
        elif name in PAIRS and inner is not None:
            found[name] = tuple((places[i], places[j]) for i, j in inner)
        elif isinstance(inner, msgspec.Struct):
            found[name] = _moved(inner, places, count)
        elif isinstance(inner, tuple) and inner and isinstance(inner[0], msgspec.Struct):
            found[name] = tuple(_moved(row, places, count) for row in inner)
        elif isinstance(inner, tuple) and inner and isinstance(inner[0], tuple):
            found[name] = _enlarged(inner, places, count)
    return replace(value, **found)


def _enlarged(rows: Sequence[Sequence[Any]], places: Sequence[int], count: int) -> tuple[tuple[Any, ...], ...]:
    cells = {(places[i], places[j]): cell for i, row in enumerate(rows) for j, cell in enumerate(row)}
    return tuple(tuple(None if i == j else cells.get((i, j)) for j in range(count)) for i in range(count))
