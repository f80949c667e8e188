"""Facts of several parts of a text become those of one host: each GPU in its place, contradictions by name.

Where two parts have a value the first one stays. Parts that cannot be of one host are separated, not guessed away.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from gpucheck.model import Finding, Gpu, NvmlReading
from gpucheck.model.diagnosis.observations import (
    AcsReading,
    Collective,
    Measured,
    Method,
    Observations,
    ObservedGpu,
)
from gpucheck.model.facts import NOT_ASKED, Facts
from gpucheck.model.paste import Part
from gpucheck.run.pastes.about import GIVEN, contradiction, other_machine, place, some_gpus
from gpucheck.topology.pcie import REDIRECT

# Kinds that number their GPUs from 0 although only one may be listed.
WITHOUT_INDEX = ("nvidia-smi-q",)
MOST_CONTRARY = 8
MOST_LINES = 500_000  # of the kernel log
MOST_GPUS = 128  # no machine has more
NOTHING = Observations()
RATES = tuple(f"{path}_{way}_gb_s" for path in ("p2p", "staged") for way in ("uni", "bidir"))
CELLS = ("matrix", "p2p_access", "p2p_status", *RATES)
LISTS = ("collectives", "host_device", "flows", "under_load", "damaged", "failures", "uplinks")
# Two tools, or two directions, differ by less on a healthy link (copy engines and kernels: 0.80 on NVLink).
SAME_RATE = 0.75
# The index of a GPU in another source's order, wherever one stands.
ONE, SOME, PAIRS = "gpu", "gpus", ("pairs", "integrity_bad_pairs")

S = TypeVar("S", bound=msgspec.Struct)


class OtherMachine(ValueError):
    """What cannot be of the machine of what was read before, and why."""


class Merged(NamedTuple):
    """The facts of one host; of GPUs in NVML's terms there may be several readings, which stay with their parts.

    contrary: what else was observed, each time with a part in front that contradicts the facts.
    parts: those of this host; others: those that cannot be. findings: of the paste; split: why the others are of
    another host.
    """

    facts: Facts = Facts()
    contrary: tuple[Observations, ...] = ()
    parts: tuple[Part, ...] = ()
    others: tuple[Part, ...] = ()
    findings: tuple[Finding, ...] = ()
    split: tuple[Finding, ...] = ()


def merged(parts: Sequence[Part], model: str | None = None) -> Merged:
    """Put the parts together: what the user observed first, then the part with most GPUs.

    model: of GPUs whose model no part names.
    """
    seeing = [part for part in parts if part.facts.observed != NOTHING]
    runs = sorted((part for part in seeing if not part.partial), key=_order, reverse=True)
    most = max((len(part.facts.observed.gpus) for part in runs), default=0)
    seen = NOTHING
    kept: list[tuple[Part, Observations]] = []
    contrary, others = [], []
    findings, split = [], []
    for part in runs:
        try:
            new = _placed(part, seen.gpus, most)
            seen, differing = merge(seen, new) if part.ranges else (new, ())
        except OtherMachine as problem:
            others.append(part)
            split.append(other_machine(place(part), place(kept[-1][0]) if kept else GIVEN, str(problem)))
            continue
        if differing:
            contrary.append(part)
            against = next((other for other, one in kept if _differ(one, new)), kept[-1][0])
            findings.append(contradiction(place(part), place(against), differing))
        else:
            kept.append((part, new))
            # Of GPUs that have no place here their NVLinks are in no other evaluation.
            if isinstance(part.facts.nvml, NvmlReading) and len(part.facts.observed.gpus) > len(seen.gpus):
                contrary.append(part)
    lists = [part for part in seeing if part.partial and not _is_elsewhere(part, seen)]
    if strange := [part for part in seeing if part.partial and part not in lists]:
        others += strange
        split.append(other_machine(place(strange[0]), place(kept[-1][0]), "the GPUs have other bus ids"))
    fitting = [part for part in runs if part not in others]
    findings += _partly_covered([part for part in fitting if part.ranges], len(seen.gpus))
    worlds = [_by(part, fitting, most) for part in contrary[:MOST_CONTRARY]]
    seen, *rest = [_complete(one, lists, model) for one in (seen, *worlds)]
    own = [part for part in parts if part not in others]
    return Merged(_facts(seen, own), tuple(rest), tuple(own), tuple(others), tuple(findings), tuple(split))


def _facts(seen: Observations, parts: Sequence[Part]) -> Facts:
    logs = [part.facts.kernel_log for part in parts if part.facts.kernel_log]
    lines = tuple(line for log in logs for line in log.lines)[-MOST_LINES:]
    return Facts(
        observed=seen,
        kernel_log=replace(logs[0], lines=lines) if logs else NOT_ASKED,
        rdma=tuple({device.name: device for part in parts for device in part.facts.rdma or ()}.values()) or NOT_ASKED,
        pci=tuple({device.bus_id: device for part in parts for device in part.facts.pci or ()}.values()) or NOT_ASKED,
    )


def _order(part: Part) -> tuple[bool, bool, int]:
    """The user's own observations come first, listings of a machine's GPUs after the parts that describe a run.

    The most GPUs first among both, by their numbers too. A run may have used some of the GPUs only, and
    ``nvidia-smi -i 3`` lists one.
    """
    indexes = [gpu.index + 1 for gpu in part.facts.gpus] if has_index(part) else []
    count = max((len(part.facts.observed.gpus), *indexes))
    return not part.ranges, not isinstance(part.facts.nvml, NvmlReading), count


def _by(first: Part, parts: Sequence[Part], most: int) -> Observations:
    seen = NOTHING
    for part in (first, *(one for one in parts if one is not first)):
        with suppress(OtherMachine):
            seen, _ = merge(seen, _placed(part, seen.gpus, most))
    return seen


def _differ(one: Observations, other: Observations) -> bool:
    try:
        return bool(merge(one, other)[1])
    except OtherMachine:
        return True


def _complete(seen: Observations, lists: Sequence[Part], model: str | None) -> Observations:
    seen = _listed(_joined(seen), [part.facts.observed for part in lists])
    if model is not None:
        gpus = seen.gpus or tuple(ObservedGpu() for _ in seen.matrix or ())
        seen = replace(seen, gpus=tuple(replace(gpu, model=gpu.model or model) for gpu in gpus))
    return seen


def _is_elsewhere(part: Part, seen: Observations) -> bool:
    """Whether a list of PCI functions has GPUs, and none of them is one of the machine's."""
    ids = {gpu.bus_id for gpu in part.facts.observed.gpus}
    return bool(ids and seen.gpus) and have_bus_ids(seen.gpus) and not ids & {gpu.bus_id for gpu in seen.gpus}


def _partly_covered(parts: Sequence[Part], count: int) -> Iterable[Finding]:
    for part in parts:
        seen = part.facts.observed
        own = len(seen.gpus)
        if isinstance(part.facts.nvml, NvmlReading):
            if own > count:
                yield some_gpus(part, count, own)
        elif 0 < own < count and seen.measured != Measured() and not _is_of_single_gpus(seen):
            yield some_gpus(part, own, count)


def bus_ids_by_index(parts: Iterable[Part]) -> dict[int, str]:
    """Return the bus ids of the GPUs that a part lists with index and bus id; the longest list counts first."""
    found: dict[int, str] = {}
    readings = [part.facts.nvml for part in parts if isinstance(part.facts.nvml, NvmlReading) and has_index(part)]
    for reading in sorted(readings, key=lambda one: -len(one.gpus)):
        for gpu in reading.gpus:
            if has_bus_id(gpu):
                found.setdefault(gpu.index, gpu.pci_bus_id)
    return found


def has_index(part: Part) -> bool:
    """Whether the part numbers its GPUs as the driver does."""
    return bool(part.ranges) and part.ranges[0].kind not in WITHOUT_INDEX


def has_bus_id(gpu: Gpu) -> bool:
    """Whether the text names the GPU's bus id; a reader puts ``GPU3`` in its place if not."""
    return not gpu.pci_bus_id.startswith("GPU")


def _placed(part: Part, machine: Sequence[ObservedGpu], most: int) -> Observations:
    """A part's observations with its GPUs in the machine's places.

    machine: the GPUs known so far. most: GPUs of the part that lists most. Raises OtherMachine.
    """
    new = part.facts.observed
    if not isinstance(part.facts.nvml, NvmlReading):
        more = most - len(new.gpus) if _is_of_single_gpus(new) else 0
        return replace(new, gpus=(*new.gpus, *(ObservedGpu(),) * more))
    by_index = {gpu.index: one for gpu, one in zip(part.facts.nvml.gpus, new.gpus, strict=False)}
    if not new.gpus or len(new.gpus) == len(machine):
        return new
    ids = {gpu.bus_id or "" for gpu in new.gpus}
    if machine and len(new.gpus) > len(machine) and {gpu.bus_id for gpu in machine} <= ids:
        return new
    if not machine:
        placed = tuple(by_index.get(at, ObservedGpu()) for at in range(max(by_index, default=-1) + 1))
        return new if _is_counted(part, by_index) else replace(new, gpus=placed)
    found = aligned(machine, new.gpus, by_index if has_index(part) else None)
    if found is None:
        models = {gpu.model for gpu in new.gpus}
        only = ObservedGpu(model=next(iter(models))) if len(models) == 1 else ObservedGpu()
        return replace(new, gpus=(only,) * len(machine))
    if not any(found) and have_bus_ids((*machine, *new.gpus)):
        raise OtherMachine("the GPUs have other bus ids than in what was read before: two machines")
    if not any(found):
        numbers = ", ".join(map(str, sorted(by_index)))
        raise OtherMachine(f"GPU {numbers} here, {len(machine)} GPUs in what was read before, which may be a part")
    gpus = zip(found, machine, strict=True)
    return replace(new, gpus=tuple(one or ObservedGpu(bus_id=gpu.bus_id) for one, gpu in gpus))


def _is_of_single_gpus(seen: Observations) -> bool:
    """A result of single GPUs, as bandwidthTest prints it, does not state how many there are."""
    only = Observations(gpus=seen.gpus, measured=Measured(host_device=seen.measured.host_device))
    return bool(seen.measured.host_device) and replace(seen, measured=replace(seen.measured, method=Method())) == only


def _is_counted(part: Part, by_index: dict[int, ObservedGpu]) -> bool:
    """Whether each GPU is identified by its position or by its bus id."""
    named = have_bus_ids(by_index.values()) or not has_index(part)
    return named or sorted(by_index) == list(range(len(by_index))) or max(by_index) >= MOST_GPUS


def merge(seen: Observations, new: Observations) -> tuple[Observations, tuple[str, ...]]:
    """Return observations with another source's added, and what the two state differently: then nothing is added.

    Where both have a value the first one stays. Raises OtherMachine where the two speak of different machines:
    other models or bus ids, more GPUs than one machine has, or GPUs that cannot be placed.
    """
    one, other = _fitted(seen, new)
    if differing := _contradictions(one, other):
        return seen, differing
    both = replace(
        _filled(replace(one, gpus=()), replace(other, gpus=())),
        gpus=_gpus(one.gpus, other.gpus) if one.gpus and other.gpus else one.gpus or other.gpus,
        environment={**other.environment, **one.environment},
        measured=_measured(one.measured, other.measured),
    )
    return both, ()


def _fitted(seen: Observations, new: Observations) -> tuple[Observations, Observations]:
    """Both with as many GPUs as the larger has, each in its own place. Raises OtherMachine."""
    count, other = len(seen.gpus), len(new.gpus)
    if max(other, len(new.matrix or ())) > MOST_GPUS:
        raise OtherMachine(f"more than {MOST_GPUS} GPUs, which no machine has. Give the matrix of one machine")
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
        raise OtherMachine(
            f"{other} GPUs here, {count} in what was read before: these are not of one machine, or no bus id places "
            "the ones among the others. Give output of one run with the same CUDA_VISIBLE_DEVICES"
        )
    return (few, many) if count < other else (many, few)


def _places(few: Sequence[ObservedGpu], many: Sequence[ObservedGpu]) -> tuple[int, ...] | None:
    at = {gpu.bus_id: i for i, gpu in enumerate(many)}
    found = [at.get(gpu.bus_id) for gpu in few if gpu.bus_id]
    if not have_bus_ids(many) or len(set(found)) < len(few) or None in found:
        return None
    return tuple(i for i in found if i is not None)


def _is_unplaced(one: Observations) -> bool:
    bare = all(gpu == ObservedGpu(bus_id=gpu.bus_id, model=gpu.model) for gpu in one.gpus)
    rest = replace(one, gpus=(), environment={}, measured=replace(one.measured, collectives=()))
    return bare and rest == Observations()


def _contradictions(one: Observations, other: Observations) -> tuple[str, ...]:
    here, there = _stated(one), _stated(other)
    both = [(key, here[key], there[key]) for key in here if key in there]
    return tuple(f"{_named(*key)}: {_shown(a)} and {_shown(b)}" for key, a, b in both if not _agree(a, b))


def _stated(seen: Observations) -> dict[tuple[Any, ...], Any]:
    """What sources of one machine must agree in, by its name and the GPUs that it is of."""
    access, every = seen.p2p_access, range(len(seen.gpus))
    if isinstance(access, bool):
        access = tuple(tuple(None if i == j else access for j in every) for i in every)
    grids = {"path class": seen.matrix, "P2P status": seen.p2p_status, "P2P access": access}
    grids |= {name: getattr(seen.measured, name) for name in RATES}
    found: dict[tuple[Any, ...], Any] = {
        (name, i, j): cell
        for name, grid in grids.items()
        for i, row in enumerate(grid or ())
        for j, cell in enumerate(row)
    }
    found |= {("NVLinks", i): gpu.nvlinks.active for i, gpu in enumerate(seen.gpus)}
    found |= {("PCIe width", i): gpu.pcie.width for i, gpu in enumerate(seen.gpus)}
    found |= {(name,): getattr(seen.host, name) for name in ("iommu", "acs_redirect", "rebar")}
    return {key: value for key, value in found.items() if value is not None}


def _named(name: str, *gpus: int) -> str:
    return f"{name} of GPU {'-'.join(map(str, gpus))}" if gpus else name


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _agree(a: Any, b: Any) -> bool:
    """Rates are floats."""
    return min(a, b) >= SAME_RATE * max(a, b) if isinstance(a, float) else bool(a == b)


def _joined(seen: Observations) -> Observations:
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


def _listed(seen: Observations, lists: Sequence[Observations]) -> Observations:
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
        raise OtherMachine("the GPUs have other bus ids than in what was read before: two machines")
    there = tuple(row for row in rows if row is not None)
    for index, (one, other) in enumerate(zip(here, there, strict=True)):
        if one.model and other.model and not _same_model(one.model, other.model):
            raise OtherMachine(
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
    for at, gpu in zip(places, seen.gpus, strict=True):
        gpus[at] = gpu
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
        if name == ONE and isinstance(inner, int):
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
