"""Which of a machine's GPUs a source describes: one rule for every source that names or counts GPUs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from gpucheck.model.diagnosis.observations import Observations, ObservedGpu

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
