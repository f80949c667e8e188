"""Pasted text as a host in NVML's terms, for the checks of a live host.

A pasted machine is a Host that answers from the text and raises NotRecorded for everything else. A check that cannot be
answered means nothing: what is not in the text is neither a fault nor a pass.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from gpucheck.checks import all_checks
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
from gpucheck.model.diagnosis.observations import Observations, ObservedHost
from gpucheck.model.diagnosis.paste import Part
from gpucheck.model.facts import NOT_ASKED, Facts
from gpucheck.model.finding.about import About
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
T = TypeVar("T")
DROPPED = (Verdict.SKIP, Verdict.UNKNOWN)


class PastedHost:
    """A Host (see model/host.py) with the content of a text only: one reading of NVML, PCI functions, kernel lines."""

    def __init__(
        self,
        nvml: NvmlReading | NvmlFailure | None = None,
        pci: Sequence[PciDevice] = (),
        log: KernelLog | None = None,
    ) -> None:
        self._nvml, self._pci, self._log = nvml, tuple(pci), log

    def nvml(self) -> NvmlReading | NvmlFailure:
        """Return the GPUs as the text reports them; values that it does not contain are None."""
        if self._nvml is None:
            raise NotRecorded("The text contains no NVML reading.")
        return self._nvml

    def pci(self) -> tuple[PciDevice, ...]:
        return _held(self._pci or None, "PCI functions")

    def kernel_log(self) -> KernelLog:
        return _held(self._log, "kernel messages")

    def __getattr__(self, name: str) -> Any:
        """Every other question of a Host."""
        if name.startswith("_"):
            raise AttributeError(name)

        def not_recorded(*_: object) -> Any:
            raise NotRecorded(f"The text does not contain {name}.")

        return not_recorded


def _held(value: T | None, what: str) -> T:
    if value is None:
        raise NotRecorded(f"The text holds no {what}.")
    return value


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
            found += _checked(replace(part.nvml, gpus=gpus), pci)
            found += _links_up(gpus)
    return tuple(_worst_of_each(found))


def _named(gpu: Gpu, part: Part, places: dict[int, str]) -> Gpu:
    """The GPU with the bus id that another part gives to its index."""
    if has_bus_id(gpu) or not has_index(part) or gpu.index not in places:
        return gpu
    return replace(gpu, pci_bus_id=places[gpu.index])


def _checked(nvml: NvmlReading, pci: tuple[PciDevice, ...]) -> Iterator[Finding]:
    host, facts = PastedHost(nvml, pci), Facts(nvml=nvml, pci=pci or NOT_ASKED)
    for check in all_checks():
        if check.name in ELSEWHERE:
            continue
        try:
            if check.probe is None:
                evaluated = tuple(check.evaluate(facts.read(*check.more(facts.read(*check.needs)))))
            else:
                evaluated = tuple(check.evaluate(check.probe(host)))
        except NotRecorded:
            continue
        yield from (_by_index(one) for one in evaluated if one.verdict not in DROPPED)


def _links_up(gpus: Iterable[Gpu]) -> Iterator[Finding]:
    """Return PASS if every NVLink port is up. Inactive ports are left to gpucheck.diagnose, which has the product."""
    for gpu in gpus:
        if gpu.nvlinks and all(link.active and link.speed_mb_s for link in gpu.nvlinks):
            yield About(check=LINKS, subject=f"gpu:{gpu.pci_bus_id}").passes(f"{len(gpu.nvlinks)} NVLinks active")


def dark_links(seen: Observations) -> Iterator[Finding]:
    """GPUs of an unknown model without any NVLink up: a fault on a board with NVSwitches, normal without a bridge."""
    dark = [gpu for gpu in seen.gpus if gpu.nvlinks.total and gpu.nvlinks.active == 0 and gpu.model is None]
    if dark:
        yield About(check=LINKS).finding(
            Verdict.UNKNOWN,
            seen=f"0 of {dark[0].nvlinks.total} NVLinks up on {counted(len(dark), 'GPU')}",
            why="every NVLink is down: on a board with NVSwitches a fault, normal for a card without a bridge; "
            "the model is not known",
            fix="gpucheck diagnose --gpu MODEL; on a board with NVSwitches: systemctl status nvidia-fabricmanager",
            cause="nvlink-down",
            confidence="possible",
        )


def _by_index(finding: Finding) -> Finding:
    """Commands take an index where the text names no bus id: ``-i GPU3`` is ``-i 3``."""
    return replace(finding, fix=re.sub(r"-i GPU(\d*)\??", lambda index: f"-i {index[1] or 'INDEX'}", finding.fix))


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
