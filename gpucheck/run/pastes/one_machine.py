"""Parts of pasted text -> the observations of one machine. Parts of two machines raise TwoMachines."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gpucheck.diagnose import ObservationProblem, together
from gpucheck.diagnose.alignment import aligned, have_bus_ids
from gpucheck.diagnose.combine import joined, listed
from gpucheck.model import Gpu, NvmlReading
from gpucheck.model.diagnosis.observations import Measured, Method, Observations, ObservedGpu
from gpucheck.model.diagnosis.paste import Part, ReadRange

# Kinds that number their GPUs from 0 although only one may be listed.
WITHOUT_INDEX = ("nvidia-smi-q",)
MOST_GPUS = 128  # no machine has more
NOTHING = Observations()


class TwoMachines(ValueError):
    """Parts that cannot be of one machine. As text it is one line that names both places and what to do."""


def of_one_machine(parts: list[Part], machine: str | None) -> list[Part]:
    """Return the parts of the requested machine; parts that name none belong to it. Raises TwoMachines."""
    named: dict[str, Part] = {}
    for part in parts:
        if part.machine:
            named.setdefault(_short(part.machine), part)
    if machine is not None:
        if _short(machine) not in named:
            have = ", ".join(str(part.machine) for part in named.values())
            words = f"The inputs name {have}" if have else "The inputs name no machine"
            raise TwoMachines(f"no part of the input is of {machine}. {words}")
        return [part for part in parts if part.machine is None or _short(part.machine) == _short(machine)]
    if len(named) > 1:
        first, second = list(named.values())[:2]
        what = "two machines" if len(named) == 2 else f"{len(named)} machines"
        raise TwoMachines(
            f"{what}: {first.machine} ({_place(first)}) and {second.machine} ({_place(second)}). "
            f"Choose one: --machine {first.machine}"
        )
    return parts


def observations(parts: Iterable[Part], given: Observations, model: str | None) -> Observations:
    """Return all parts as one set of observations. Raises TwoMachines with both places.

    given: the user's own. model: of GPUs whose model no part names.
    """
    seen, before = given, "--observations"
    parts = [part for part in parts if part.observations != NOTHING]
    whole = sorted((part for part in parts if not part.partial), key=_order, reverse=True)
    most = max([len(given.gpus), *(len(part.observations.gpus) for part in whole)])
    for part in whole:
        try:
            seen = together(seen, _placed(part, seen.gpus, most))
        except ObservationProblem as problem:
            raise TwoMachines(f"{_place(part)}: {problem.what}. Read before: {before}") from problem
        before = _place(part)
    seen = listed(joined(seen), [part.observations for part in parts if part.partial])
    if model is not None:
        gpus = seen.gpus or tuple(ObservedGpu() for _ in seen.matrix or ())
        seen = replace(seen, gpus=tuple(replace(gpu, model=gpu.model or model) for gpu in gpus))
    return seen


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


def _short(host: str) -> str:
    """A host's name without its domain; an address as it is."""
    return host.lower() if host[:1].isdigit() or ":" in host else host.lower().partition(".")[0]


def _place(part: Part) -> str:
    one: ReadRange = part.ranges[0]
    return f"{one.source} lines {one.first_line}-{part.ranges[-1].last_line} ({one.kind})"


def _order(part: Part) -> int:
    """Listings of a machine's GPUs come after the parts that describe a run, the longest listing first among them.

    A run may have used some of the GPUs only, and ``nvidia-smi -i 3`` lists one.
    """
    return len(part.nvml.gpus) if isinstance(part.nvml, NvmlReading) else 1 << 20


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
