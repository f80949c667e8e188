"""Pasted text as facts in NVML's terms, for the checks of a live host.

A check whose needs are not in the text is not evaluated: what is not in the text is neither a fault nor a pass.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from gpucheck.checks import all_checks
from gpucheck.checks.nvlink import fabric
from gpucheck.knowledge.codes import Subject
from gpucheck.model import (
    Finding,
    Gpu,
    NotRecorded,
    NvmlReading,
    Verdict,
)
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Part
from gpucheck.run.pastes.merge import bus_ids_by_index, has_bus_id, has_index

# No fault of a host whose output was pasted.
PERSISTENCE = "persistence"
LINKS = "nvlink-links"  # the check name of gpucheck.diagnose
DROPPED = (Verdict.SKIP, Verdict.UNKNOWN)


def findings(parts: Sequence[Part], host: Facts) -> tuple[Finding, ...]:
    """What the checks find in each part that speaks of GPUs in NVML's terms. PASS is kept where nothing is wrong.

    Each part is evaluated by itself: two of them may be of two times. host: of all parts together.
    """
    places = bus_ids_by_index(parts)
    found: list[Finding] = []
    for part in parts:
        nvml = part.facts.nvml
        if isinstance(nvml, NvmlReading) and nvml.gpus:
            gpus = tuple(_named(gpu, part, places) for gpu in nvml.gpus)
            found += _checked(Facts(nvml=replace(nvml, gpus=gpus), pci=host.pci))
            found += (*_links_up(gpus), *fabric.of_gpus(gpus))
    return tuple(_worst_of_each(found))


def _named(gpu: Gpu, part: Part, places: dict[int, str]) -> Gpu:
    if has_bus_id(gpu) or not has_index(part) or gpu.index not in places:
        return gpu
    return replace(gpu, pci_bus_id=places[gpu.index])


def _checked(facts: Facts) -> Iterator[Finding]:
    for check in all_checks():
        if check.name == PERSISTENCE:
            continue
        try:
            evaluated = tuple(check.evaluate(facts.read(*check.needs).read(*check.more(facts))))
        except NotRecorded:
            continue
        yield from (one for one in evaluated if one.verdict not in DROPPED)


def _links_up(gpus: Iterable[Gpu]) -> Iterator[Finding]:
    """Return PASS if every NVLink port is up. Inactive ports are left to gpucheck.diagnose, which has the product."""
    for gpu in gpus:
        if gpu.nvlinks and all(link.active and link.speed_mb_s for link in gpu.nvlinks):
            yield Subject(check=LINKS, name=f"gpu:{gpu.pci_bus_id}").passes(f"{len(gpu.nvlinks)} NVLinks active")


def _worst_of_each(found: Iterable[Finding]) -> Iterator[Finding]:
    """Return every problem once, and one PASS for the results of a check of a GPU without problems."""
    found = list(found)
    bad = {(one.check, one.subject) for one in found if one.verdict is not Verdict.PASS}
    seen: set[object] = set()
    for one in found:
        place = (one.check, one.subject)
        key = place if one.verdict is Verdict.PASS else (*place, one.cause, str(one.seen))
        if key not in seen and not (one.verdict is Verdict.PASS and place in bad):
            seen.add(key)
            yield one
