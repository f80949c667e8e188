"""Which of a machine's GPUs a source describes: one rule for every source that names or counts GPUs."""

from collections.abc import Iterable, Mapping, Sequence

from gpucheck.model.diagnosis.observations import ObservedGpu


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
