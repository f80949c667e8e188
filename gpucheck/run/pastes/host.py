"""Pasted text as facts in NVML's terms, for the checks of a live host.

A check whose needs are not in the text is not evaluated: what is not in the text is neither a fault nor a pass.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from gpucheck.checks import all_checks
from gpucheck.checks.nvlink._fabric_health import health_findings, unregistered
from gpucheck.knowledge.codes import Subject
from gpucheck.model import (
    Finding,
    Gpu,
    NotRecorded,
    NvmlReading,
    Verdict,
)
from gpucheck.model.diagnosis.observations import Observations, ObservedHost
from gpucheck.model.diagnosis.paste import Part
from gpucheck.model.facts import NOT_ASKED, Facts
from gpucheck.printable import counted
from gpucheck.run.pastes.one_machine import bus_ids_by_index, has_bus_id, has_index

# Evaluated elsewhere: kernel lines and links by run/pastes.py, since they are weighed together with what was
# measured. Processes on a GPU and persistence mode are not faults of a host whose output was pasted.
ELSEWHERE = frozenset(
    (
        *("acs", "bar1", "iommu", "kernel-log", "nvlink", "p2p-status", "pcie-link", "pcie-path", "topology"),
        *("persistence", "processes"),
    )
)
LINKS = "nvlink-links"  # the check name of gpucheck.diagnose
DROPPED = (Verdict.SKIP, Verdict.UNKNOWN)


def findings(parts: Sequence[Part]) -> tuple[Finding, ...]:
    """What the checks find in each part that speaks of GPUs in NVML's terms. PASS is kept where nothing is wrong.

    Each part is evaluated by itself: two of them may be of two times.
    """
    pci = tuple({device.bus_id: device for part in parts for device in part.pci}.values())
    places = bus_ids_by_index(parts)
    found: list[Finding] = []
    for part in parts:
        if isinstance(part.nvml, NvmlReading) and part.nvml.gpus:
            gpus = tuple(_named(gpu, part, places) for gpu in part.nvml.gpus)
            found += _checked(Facts(nvml=replace(part.nvml, gpus=gpus), pci=pci or NOT_ASKED))
            found += _links_up(gpus)
            found += (*unregistered(gpus), *health_findings(gpus))
    return tuple(_worst_of_each(found))


def _named(gpu: Gpu, part: Part, places: dict[int, str]) -> Gpu:
    """The GPU with the bus id that another part gives to its index."""
    if has_bus_id(gpu) or not has_index(part) or gpu.index not in places:
        return gpu
    return replace(gpu, pci_bus_id=places[gpu.index])


def _checked(facts: Facts) -> Iterator[Finding]:
    for check in all_checks():
        if check.name in ELSEWHERE:
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


def dark_links(seen: Observations) -> Iterator[Finding]:
    """GPUs of an unknown model without any NVLink up: a fault on a board with NVSwitches, normal without a bridge."""
    dark = [gpu for gpu in seen.gpus if gpu.nvlinks.total and gpu.nvlinks.active == 0 and gpu.model is None]
    if dark:
        state = f"0 of {dark[0].nvlinks.total} NVLinks up on {counted(len(dark), 'GPU')}"
        yield Subject(check=LINKS).unknown("pastes.nvlinks-dark", state)


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


def of_links(about_links: tuple[Finding, ...], seen: Observations, found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings about links, without those unknown because the text lists GPUs and paths only.

    found: the findings about these GPUs; a text with no other content keeps its UNKNOWN.
    """
    lists_only = replace(seen, gpus=(), matrix=None, host=ObservedHost(), environment={}) == Observations()
    links = any(gpu.nvlinks.total for gpu in seen.gpus)
    return (
        tuple(one for one in about_links if one.verdict not in DROPPED)
        if lists_only and (found or links)
        else about_links
    )
