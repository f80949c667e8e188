"""Parts of pasted text -> the observations of one machine; what contradicts them, and what is of another machine."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpucheck.diagnose import ObservationProblem, together
from gpucheck.diagnose.combine import aligned, contradictions, have_bus_ids, joined, listed
from gpucheck.model import Finding, Gpu, NvmlReading
from gpucheck.model.diagnosis.observations import Measured, Method, Observations, ObservedGpu
from gpucheck.model.diagnosis.paste import Part
from gpucheck.run.pastes.about import contradiction, other_machine, place, some_gpus

# Kinds that number their GPUs from 0 although only one may be listed.
WITHOUT_INDEX = ("nvidia-smi-q",)
MOST_GPUS = 128  # no machine has more
MOST_CONTRARY = 8
NOTHING = Observations()
GIVEN = "--observations"


class Merged(NamedTuple):
    """Observations of one machine. contrary: the same, each with a part that contradicts it in front.

    others: parts that cannot be of this machine. findings: of the paste; split: why the others are another machine.
    """

    seen: Observations
    contrary: tuple[Observations, ...] = ()
    others: tuple[Part, ...] = ()
    findings: tuple[Finding, ...] = ()
    split: tuple[Finding, ...] = ()


def merged(parts: Iterable[Part], given: Observations = NOTHING, model: str | None = None) -> Merged:
    """Return all parts as observations of one machine, the part with most GPUs first.

    given: the user's own. model: of GPUs whose model no part names.
    """
    parts = [part for part in parts if part.observations != NOTHING]
    runs = sorted((part for part in parts if not part.partial), key=_order, reverse=True)
    most = max([len(given.gpus), *(len(part.observations.gpus) for part in runs)])
    seen, kept = given, [(GIVEN, given)] if given != NOTHING else []
    contrary, others = [], []
    findings, split = [], []
    for part in runs:
        try:
            new = _placed(part, seen.gpus, most)
            if differing := contradictions(seen, new):
                contrary.append(part)
                findings.append(contradiction(place(part), _against(kept, new), differing))
                continue
            seen = together(seen, new)
            kept.append((place(part), new))
        except ObservationProblem as problem:
            others.append(part)
            split.append(other_machine(place(part), kept[-1][0] if kept else GIVEN, problem.what))
    lists = [part for part in parts if part.partial and not _is_elsewhere(part, seen)]
    if strange := [part for part in parts if part.partial and part not in lists]:
        others += strange
        split.append(other_machine(place(strange[0]), kept[-1][0] if kept else GIVEN, "the GPUs have other bus ids"))
    fitting = [part for part in runs if part not in others]
    findings += _partly_covered(fitting, len(seen.gpus))
    worlds = [_with_first(part, fitting, given, most) for part in contrary[:MOST_CONTRARY]]
    seen, *rest = [_complete(one, lists, model) for one in (seen, *worlds)]
    return Merged(seen, tuple(rest), tuple(others), tuple(findings), tuple(split))


def _complete(seen: Observations, lists: Sequence[Part], model: str | None) -> Observations:
    seen = listed(joined(seen), [part.observations for part in lists])
    if model is not None:
        gpus = seen.gpus or tuple(ObservedGpu() for _ in seen.matrix or ())
        seen = replace(seen, gpus=tuple(replace(gpu, model=gpu.model or model) for gpu in gpus))
    return seen


def _with_first(part: Part, parts: Sequence[Part], given: Observations, most: int) -> Observations:
    """The same machine by this part, and by all others that do not contradict it."""
    seen = _placed(part, (), most)
    if given != NOTHING and not _differing(seen, given):
        seen = together(seen, given)
    for one in parts:
        if one is not part:
            seen = _added(seen, one, most)
    return seen


def _added(seen: Observations, part: Part, most: int) -> Observations:
    try:
        new = _placed(part, seen.gpus, most)
        return seen if contradictions(seen, new) else together(seen, new)
    except ObservationProblem:
        return seen


def _against(kept: Sequence[tuple[str, Observations]], new: Observations) -> str:
    """The part before that a new one contradicts."""
    return next((where for where, one in kept if _differing(one, new)), kept[-1][0])


def _differing(one: Observations, other: Observations) -> bool:
    try:
        return bool(contradictions(one, other))
    except ObservationProblem:
        return True


def _is_elsewhere(part: Part, seen: Observations) -> bool:
    """Whether a list of PCI functions has GPUs, and none of them is one of the machine's."""
    ids = {gpu.bus_id for gpu in part.observations.gpus}
    return bool(ids and seen.gpus) and have_bus_ids(seen.gpus) and not ids & {gpu.bus_id for gpu in seen.gpus}


def _partly_covered(parts: Sequence[Part], count: int) -> Iterable[Finding]:
    """Runs on fewer GPUs than the machine has, and lists of more GPUs than the runs used."""
    for part in parts:
        own = len(part.observations.gpus)
        if isinstance(part.nvml, NvmlReading):
            if own > count:
                yield some_gpus(part, count, own)
        elif 0 < own < count and part.observations.measured != Measured() and not _is_of_single_gpus(part.observations):
            yield some_gpus(part, own, count)


def bus_ids_by_index(parts: Iterable[Part]) -> dict[int, str]:
    """Return the bus ids of the GPUs that a part lists with index and bus id; the longest list counts first."""
    found: dict[int, str] = {}
    readings = [part.nvml for part in parts if isinstance(part.nvml, NvmlReading) and has_index(part)]
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


def _order(part: Part) -> tuple[bool, int]:
    """Listings of a machine's GPUs come after the parts that describe a run; the most GPUs first among both.

    A run may have used some of the GPUs only, and ``nvidia-smi -i 3`` lists one.
    """
    return not isinstance(part.nvml, NvmlReading), len(part.observations.gpus)


def _placed(part: Part, machine: Sequence[ObservedGpu], most: int) -> Observations:
    """A part's observations with its GPUs in the machine's places.

    machine: the GPUs known so far. most: GPUs of the part that lists most. Raises ObservationProblem.
    """
    new = part.observations
    if not isinstance(part.nvml, NvmlReading):
        return _padded(new, most) if _is_of_single_gpus(new) else new
    by_index = {gpu.index: one for gpu, one in zip(part.nvml.gpus, new.gpus, strict=False)}
    if not new.gpus or len(new.gpus) == len(machine):
        return new
    ids = {gpu.bus_id or "" for gpu in new.gpus}
    if machine and len(new.gpus) > len(machine) and {gpu.bus_id for gpu in machine} <= ids:
        return new
    if not machine:
        return new if _is_counted(part, by_index) else replace(new, gpus=_at(by_index, max(by_index) + 1))
    found = aligned(machine, new.gpus, by_index if has_index(part) else None)
    if found is None:
        models = {gpu.model for gpu in new.gpus}
        only = ObservedGpu(model=next(iter(models))) if len(models) == 1 else ObservedGpu()
        return replace(new, gpus=(only,) * len(machine))
    if not any(found) and have_bus_ids((*machine, *new.gpus)):
        raise ObservationProblem("the GPUs have other bus ids than in what was read before: two machines")
    gpus = zip(found, machine, strict=True)
    return replace(new, gpus=tuple(one or ObservedGpu(bus_id=gpu.bus_id) for one, gpu in gpus))


def _is_of_single_gpus(seen: Observations) -> bool:
    """A result of single GPUs, as bandwidthTest prints it, does not state how many there are."""
    only = Observations(gpus=seen.gpus, measured=Measured(host_device=seen.measured.host_device))
    return bool(seen.measured.host_device) and replace(seen, measured=replace(seen.measured, method=Method())) == only


def _padded(seen: Observations, count: int) -> Observations:
    return replace(seen, gpus=(*seen.gpus, *(ObservedGpu() for _ in range(count - len(seen.gpus)))))


def _is_counted(part: Part, by_index: dict[int, ObservedGpu]) -> bool:
    """Whether each GPU is identified by its position or by its bus id."""
    named = have_bus_ids(by_index.values()) or not has_index(part)
    return named or sorted(by_index) == list(range(len(by_index))) or max(by_index) >= MOST_GPUS


def _at(by_index: dict[int, ObservedGpu], count: int) -> tuple[ObservedGpu, ...]:
    return tuple(by_index.get(at, ObservedGpu()) for at in range(count))
