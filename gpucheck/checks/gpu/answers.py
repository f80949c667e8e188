"""NVML answers: does each GPU answer the calls that its equals answer?

Source: return codes of NVML. "Not supported" is normal for a product, and then all GPUs of it return it; checks do not
evaluate what a GPU does not have. From one GPU of several equal ones it hides whatever the call would have reported.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from gpucheck.checks._nvml import about, quick_check, with_gpus
from gpucheck.knowledge.codes import Subject
from gpucheck.model import NOT_SUPPORTED, Finding, Gpu, NvmlReading
from gpucheck.model.facts import Facts

NAME = "nvml-answers"
SHOWN = 6


@with_gpus(NAME)
def evaluate(_: Facts, nvml: NvmlReading) -> Iterator[Finding]:
    """A finding for each GPU that lacks what most of its equals have, or one for the host."""
    if nvml.nvml_version is None:  # a text, which holds what its author chose
        yield Subject(check=NAME).skips("gpu.answers-not-read")
        return
    groups: dict[tuple[object, ...], list[Gpu]] = defaultdict(list)
    for gpu in nvml.gpus:
        groups[_kind(gpu)].append(gpu)
    equal = [gpus for gpus in groups.values() if len(gpus) > 1]
    found = [finding for gpus in equal for finding in _odd(nvml, gpus)]
    yield from found
    if not equal:
        yield Subject(check=NAME).skips("gpu.no-equal-gpus")
    elif not found:
        yield Subject(check=NAME).passes(f"none of {sum(map(len, equal))} GPUs lacks what most of its kind report")


def _kind(gpu: Gpu) -> tuple[object, ...]:
    """What decides which calls a GPU answers: its product, and the modes that it is in."""
    health = gpu.health
    return gpu.device_id, bool(health.mig or gpu.mig_uuids), health.ecc, health.virtualization


def _odd(nvml: NvmlReading, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    values = {gpu.pci_bus_id: _reported(nvml, gpu) for gpu in gpus}
    refused = {gpu.pci_bus_id: _not_supported(nvml, gpu) for gpu in gpus}
    usual, common = _of_most(values.values(), len(gpus)), _of_most(refused.values(), len(gpus))
    for gpu in gpus:
        lacks = sorted(usual - values[gpu.pci_bus_id])
        calls = sorted(refused[gpu.pci_bus_id] - common)
        # Without such a code another error is the reason, which the check reports that reads the value.
        if lacks and calls:
            lines = tuple(f"{call}: NotSupported (NVML code {NOT_SUPPORTED})" for call in calls[:SHOWN])
            names = ", ".join(lacks[:SHOWN]) + (", ..." if len(lacks) > SHOWN else "")
            yield about(NAME, gpu, *lines).unknown("gpu.answers-differ", lacks=names, equals=len(gpus) - 1)


def _of_most(sets: Iterable[set[str]], count: int) -> set[str]:
    """Return what more than half of them contain; half is no majority."""
    times = Counter(name for one in sets for name in one)
    return {name for name, number in times.items() if 2 * number > count}


def _reported(nvml: NvmlReading, gpu: Gpu) -> set[str]:
    """Return what NVML reports of a GPU, by the names of recordings; ``p2p`` if it does of one of its pairs."""
    health = {name for name in gpu.health.__struct_fields__ if getattr(gpu.health, name) is not None}
    return health | ({"fabric"} if gpu.fabric is not None else set()) | ({"p2p"} if _has_pairs(nvml, gpu) else set())


def _not_supported(nvml: NvmlReading, gpu: Gpu) -> set[str]:
    """Return the calls with that code. One about a pair counts for a GPU without an answer about any of its pairs."""
    subjects = (f"gpu:{gpu.pci_bus_id}", *(() if _has_pairs(nvml, gpu) else (f"pair:{gpu.pci_bus_id}-",)))
    return {gap.call for gap in nvml.gaps if gap.code == NOT_SUPPORTED and gap.subject.startswith(subjects)}


def _has_pairs(nvml: NvmlReading, gpu: Gpu) -> bool:
    place = nvml.gpus.index(gpu)
    return any(status is not None for rows in nvml.p2p.values() for status in rows[place])


CHECK = quick_check(NAME, "hardware", evaluate, ("nvml",))
