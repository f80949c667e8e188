"""What pasted text says of GPUs in NVML's terms, to the checks that judge a live host.

A pasted machine is a Host that answers from the text and raises NotRecorded for everything else. A check that cannot be
answered says nothing: what is not in the text neither accuses nor passes.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from gpucheck.checks import all_checks
from gpucheck.diagnose import ObservationProblem
from gpucheck.model import (
    Finding,
    Gpu,
    KernelLog,
    NotRecorded,
    NvmlFailure,
    NvmlReading,
    PciDevice,
    Verdict,
)
from gpucheck.model.about import About
from gpucheck.model.observations import Observations, ObservedGpu, ObservedHost
from gpucheck.model.paste import Part
from gpucheck.model.ranking import Judgement

# Judged elsewhere: kernel lines and links by run/pastes.py, since the judge of links weighs them against what was
# measured. Users of a GPU and persistence mode are no fault of a machine whose output somebody pasted.
ELSEWHERE = frozenset(
    (
        *("acs", "bar1", "iommu", "kernel-log", "nvlink", "p2p-status", "pcie-link", "pcie-path", "topology"),
        *("persistence", "processes"),
    )
)
# Kinds that number their GPUs from 0 although only one may be listed.
WITHOUT_INDEX = ("nvidia-smi-q",)
LINKS = "nvlink-links"  # as the judge of links calls it
MOST_GPUS = 128  # no machine has more
T = TypeVar("T")
DROPPED = (Verdict.SKIP, Verdict.UNKNOWN)


class PastedHost:
    """A Host (see model/host.py) that holds only what a text says: one reading of NVML, PCI functions, kernel lines."""

    def __init__(
        self,
        nvml: NvmlReading | NvmlFailure | None = None,
        pci: Sequence[PciDevice] = (),
        log: KernelLog | None = None,
    ) -> None:
        self._nvml, self._pci, self._log = nvml, tuple(pci), log

    def nvml(self) -> NvmlReading | NvmlFailure:
        """As the text says it; a GPU's values that it does not hold are None."""
        if self._nvml is None:
            raise NotRecorded("The text holds no answer of NVML.")
        return self._nvml

    def pci(self) -> tuple[PciDevice, ...]:
        """The functions that the text lists."""
        return _held(self._pci or None, "PCI functions")

    def kernel_log(self) -> KernelLog:
        """The kernel lines of the text."""
        return _held(self._log, "kernel messages")

    def __getattr__(self, name: str) -> Any:
        """Every other question of a Host."""
        if name.startswith("_"):
            raise AttributeError(name)

        def ask(*_: object) -> Any:
            raise NotRecorded(f"The text does not say what {name} asks.")

        return ask


def _held(value: T | None, what: str) -> T:
    if value is None:
        raise NotRecorded(f"The text holds no {what}.")
    return value


def findings(parts: Sequence[Part]) -> tuple[Finding, ...]:
    """What the checks find in each part that speaks of GPUs in NVML's terms. PASS is kept where nothing is wrong.

    Each part is judged by itself: two of them may be of two times.
    """
    pci = tuple({device.bus_id: device for part in parts for device in part.pci}.values())
    places = _bus_ids_by_index(parts)
    found: list[Finding] = []
    for part in parts:
        if isinstance(part.nvml, NvmlReading) and part.nvml.gpus:
            gpus = tuple(_named(gpu, part, places) for gpu in part.nvml.gpus)
            found += _checked(PastedHost(replace(part.nvml, gpus=gpus), pci))
            found += _links_up(gpus)
    return tuple(_worst_of_each(found))


def _bus_ids_by_index(parts: Iterable[Part]) -> dict[int, str]:
    """Bus ids of the GPUs that a part lists with index and bus id. One that lists more counts first."""
    found: dict[int, str] = {}
    readings = [p.nvml for p in parts if isinstance(p.nvml, NvmlReading) and _has_index(p)]
    for reading in sorted(readings, key=lambda one: -len(one.gpus)):
        for gpu in reading.gpus:
            if not gpu.pci_bus_id.startswith("GPU"):
                found.setdefault(gpu.index, gpu.pci_bus_id)
    return found


def _has_index(part: Part) -> bool:
    return bool(part.ranges) and part.ranges[0].kind not in WITHOUT_INDEX


def _named(gpu: Gpu, part: Part, places: dict[int, str]) -> Gpu:
    """The GPU with the bus id that another part gives to its index."""
    if not gpu.pci_bus_id.startswith("GPU") or not _has_index(part) or gpu.index not in places:
        return gpu
    return replace(gpu, pci_bus_id=places[gpu.index])


def _checked(host: PastedHost) -> Iterator[Finding]:
    for check in all_checks():
        if check.name in ELSEWHERE:
            continue
        try:
            judged = tuple(check.evaluate(check.probe(host)))
        except NotRecorded:
            continue
        yield from (_by_index(one) for one in judged if one.verdict not in DROPPED)


def _links_up(gpus: Iterable[Gpu]) -> Iterator[Finding]:
    """PASS where every NVLink port is up. Ports that are down are for the judge, who knows the product."""
    for gpu in gpus:
        if gpu.nvlinks and all(link.active and link.speed_mb_s for link in gpu.nvlinks):
            yield About(check=LINKS, subject=f"gpu:{gpu.pci_bus_id}").passes(f"{len(gpu.nvlinks)} NVLinks active")


def _by_index(finding: Finding) -> Finding:
    """Commands take an index where the text names no bus id: ``-i GPU3`` is ``-i 3``."""
    return replace(finding, fix=re.sub(r"-i GPU(\d*)\??", lambda index: f"-i {index[1] or 'INDEX'}", finding.fix))


def _worst_of_each(found: Iterable[Finding]) -> Iterator[Finding]:
    """Every complaint once, and one PASS for what a check says of a GPU if nothing complains."""
    found = list(found)
    bad = {(one.check, one.subject) for one in found if one.verdict is not Verdict.PASS}
    seen: set[object] = set()
    for one in found:
        place = (one.check, one.subject)
        key = place if one.verdict is Verdict.PASS else (*place, one.cause, str(one.seen))
        if key not in seen and not (one.verdict is Verdict.PASS and place in bad):
            seen.add(key)
            yield one


def of_links(judgement: Judgement, seen: Observations, found: Sequence[Finding]) -> Judgement:
    """The judgement of links, without what it cannot know where the text lists GPUs and says nothing between them.

    found: what the checks say of these GPUs; a text that answers nothing else keeps its UNKNOWN.
    """
    lists_only = replace(seen, gpus=(), host=ObservedHost(), environment={}) == Observations()
    links = any(gpu.nvlinks.total for gpu in seen.gpus)
    kept = tuple(one for one in judgement.findings if one.verdict not in DROPPED)
    if not lists_only or not (found or links) or len(kept) == len(judgement.findings):
        return judgement
    return replace(judgement, findings=kept) if kept else Judgement(findings=())


def listed_last(parts: Iterable[Part]) -> list[Part]:
    """Parts that list a machine's GPUs after those that speak of a run, and the longest list first among them.

    A run may have used some of the GPUs only, and ``nvidia-smi -i 3`` lists one.
    """

    def order(part: Part) -> int:
        return len(part.nvml.gpus) if isinstance(part.nvml, NvmlReading) else 1 << 20

    return sorted(parts, key=order, reverse=True)


def placed(part: Part, seen: Observations) -> Observations:
    """A listing's observations with its GPUs in the places that they have in `seen`.

    A GPU that has no place there is left out. Raises ObservationProblem where none has: two machines.
    """
    new, have = part.observations, seen.gpus
    if not isinstance(part.nvml, NvmlReading) or not new.gpus or len(new.gpus) == len(have):
        return new
    by_index = {listed.index: gpu for listed, gpu in zip(part.nvml.gpus, new.gpus, strict=False)}
    if not have:
        return new if _is_counted(part, by_index) else replace(new, gpus=_at(by_index, max(by_index) + 1))
    if all(gpu.bus_id for gpu in new.gpus) and all(gpu.bus_id for gpu in have):
        by_bus = {gpu.bus_id: gpu for gpu in new.gpus}
        if not any(gpu.bus_id in by_bus for gpu in have):
            raise ObservationProblem("the GPUs have other bus ids than in what was read before: two machines")
        return replace(new, gpus=tuple(by_bus.get(gpu.bus_id, ObservedGpu(bus_id=gpu.bus_id)) for gpu in have))
    if len(new.gpus) < len(have) and _has_index(part):
        return replace(new, gpus=_at(by_index, len(have)))
    models = {gpu.model for gpu in new.gpus}
    only = ObservedGpu(model=next(iter(models))) if len(models) == 1 else ObservedGpu()
    return replace(new, gpus=tuple(only for _ in have))


def _is_counted(part: Part, by_index: dict[int, ObservedGpu]) -> bool:
    """Whether each GPU can be told by its place or by its bus id."""
    named = all(gpu.bus_id for gpu in by_index.values()) or not _has_index(part)
    return named or sorted(by_index) == list(range(len(by_index))) or max(by_index) >= MOST_GPUS


def _at(by_index: dict[int, ObservedGpu], count: int) -> tuple[ObservedGpu, ...]:
    return tuple(by_index.get(at, ObservedGpu()) for at in range(count))
