"""What the NVML-based checks share: one pass over the GPUs, and what a missing answer means.

NVML calls fail for reasons to keep apart: the GPU does not have the thing, the library has no such call, the
caller may not ask, the GPU is gone. Return codes: NVIDIA nvml.h (API 13).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any, NamedTuple

from gpucheck.knowledge.codes import Subject
from gpucheck.model import (
    DEFECT,
    DEPRECATED,
    NOT_IN_LIBRARY,
    NOT_SUPPORTED,
    Check,
    Finding,
    Gpu,
    NvmlFailure,
    NvmlGap,
    NvmlReading,
    PciDevice,
)
from gpucheck.model.facts import Facts
from gpucheck.model.finding import FOUND

Nvml = NvmlReading | NvmlFailure
OfHost = Callable[[Facts], Iterator[Finding]]
OfGpus = Callable[[Facts, NvmlReading], Iterator[Finding]]
OfGpu = Callable[[Facts, Gpu], Finding | None]
# NVML: no permission, and blocked by the operating system.
FORBIDDEN = (4, 17)
# NVML: the GPU is lost, and it needs a reset.
LOST = (15, 16)
# The gravest failure of several calls first; 2 is another error, the last of them that the GPU does not have it.
GRAVITY = {**dict.fromkeys(LOST, 0), **dict.fromkeys(FORBIDDEN, 1), NOT_IN_LIBRARY: 3, DEPRECATED: 3, NOT_SUPPORTED: 4}
# What a failed call means; another code is an error of that call.
REFUSALS = {
    NOT_IN_LIBRARY: "nvml.call-missing",
    DEPRECATED: "nvml.call-deprecated",
    **dict.fromkeys(FORBIDDEN, "nvml.access-denied"),
    LOST[0]: "nvml.gpu-lost",
    LOST[1]: "nvml.reset-required",
    DEFECT: "nvml.result-unreadable",
}


def on_the_bus(facts: Facts) -> tuple[PciDevice, ...]:
    """Return the GPUs that the PCI bus shows."""
    return tuple(device for device in facts.pci if device.is_nvidia_gpu)


def about(check: str, gpu: Gpu, *evidence: str, unit: str | None = None) -> Subject:
    """Return the subject of a finding about one GPU."""
    return Subject(check=check, name=f"gpu:{gpu.pci_bus_id}", unit=unit, evidence=evidence)


def with_gpus(check: str) -> Callable[[OfGpus], OfHost]:
    """Make an evaluation of a reading that lists a GPU that of a host: without one, that is the finding."""

    def of_host(evaluate: OfGpus) -> OfHost:
        @wraps(evaluate)
        def evaluate_host(facts: Facts) -> Iterator[Finding]:
            if isinstance(facts.nvml, NvmlFailure):
                yield not_looked(check, facts.nvml)
            elif not facts.nvml.gpus:
                yield no_gpus(check)
            else:
                yield from evaluate(facts, facts.nvml)

        return evaluate_host

    return of_host


def of_each_gpu(check: str, *, nothing: str) -> Callable[[OfGpu], OfHost]:
    """Make the evaluation of one GPU that of a host. nothing: the code of the host's SKIP without any finding."""

    def of_host(evaluate: OfGpu) -> OfHost:
        @wraps(evaluate)
        def evaluate_gpus(facts: Facts, nvml: NvmlReading) -> Iterator[Finding]:
            found = []
            for gpu in nvml.gpus:
                one = evaluate(facts, gpu)
                # A GPU that was lost during the pass passes nothing: what it answered before is not its state any more.
                if lost_gaps(nvml, gpu) and (one is None or (one.verdict not in FOUND and one.because_of is None)):
                    one = not_reported(check, nvml, gpu, what="GPU state")
                found += [one] if one is not None else []
            yield from found or [Subject(check=check).skips(nothing)]

        return with_gpus(check)(evaluate_gpus)

    return of_host


class Reads(NamedTuple):
    """What a rule about a GPU needs: values of Health, the calls that give them, and what they are, as a noun."""

    values: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    what: str = ""


NOTHING = Reads()


def quick_check(
    name: str,
    tags: str,
    rule: OfHost,
    needs: tuple[str, ...],
    more: Callable[[Facts], Iterable[str]] = lambda _: (),
    limits: tuple[str, ...] = (),
) -> Check:
    return Check(name, frozenset((*tags.split(), "quick")), rule, needs, more, limits)


def gpu_check(
    name: str,
    tags: str,
    rule: Callable[[Facts, Gpu, Subject], Finding | None],
    nothing: str,
    reads: Reads = NOTHING,
    *,
    unit: str | None = None,
    needs: tuple[str, ...] = (),
    limits: tuple[str, ...] = (),
) -> Check:
    """Return the check of a rule about one GPU: without a value that it reads, that is the finding.

    nothing: the code of the host's SKIP without any finding. needs: in addition to NVML.
    """

    @of_each_gpu(name, nothing=nothing)
    @wraps(rule)
    def evaluate(facts: Facts, gpu: Gpu) -> Finding | None:
        if any(getattr(gpu.health, value) is None for value in reads.values):
            return not_reported(name, facts.nvml, gpu, *reads.calls, what=reads.what)
        return rule(facts, gpu, about(name, gpu, unit=unit))

    return quick_check(name, tags, evaluate, ("nvml", *needs), limits=limits)


def lost_gaps(nvml: NvmlReading, gpu: Gpu) -> tuple[NvmlGap, ...]:
    """Return the failed calls that report a GPU as lost. One of a pair does not show which of its GPUs is."""
    subjects = (f"gpu:{gpu.pci_bus_id}", f"link:{gpu.pci_bus_id}/")
    return tuple(gap for gap in nvml.gaps if gap.code in LOST and gap.subject.startswith(subjects))


def gaps_of(nvml: Nvml, gpu: Gpu, *calls: str) -> tuple[NvmlGap, ...]:
    """Return failures of these calls for a GPU, its links and its pairs; of all calls if none is named."""
    subjects = (f"gpu:{gpu.pci_bus_id}", f"link:{gpu.pci_bus_id}/", f"pair:{gpu.pci_bus_id}-")
    return tuple(
        gap
        for gap in (nvml.gaps if isinstance(nvml, NvmlReading) else ())
        if (not calls or gap.call in calls) and gap.subject.startswith(subjects)
    )


def refusal(check: str, gap: NvmlGap, what: str) -> tuple[str, dict[str, Any]]:
    """Return the code of a value that a failed call did not give, and the values of that code.

    what: the missing quantity, as a noun. Which call of many shows that a GPU is lost does not matter.
    """
    code = REFUSALS.get(gap.code, "nvml.call-failed")
    values: dict[str, Any] = {"what": what, "nvml_code": gap.code}
    if gap.code not in LOST:
        values |= {"check": check, "call": gap.call, "error": gap.name.removeprefix("NVMLError_")}
    return code, values


def not_reported(check: str, nvml: Nvml, gpu: Gpu, *calls: str, what: str = "the value") -> Finding | None:
    """Return what to report in place of a value that these calls did not give; None where the GPU does not have it.

    what: the missing quantity, as a noun. The gravest failure decides; of a lost GPU, whatever its call.
    """
    gaps = gaps_of(nvml, gpu, *calls) if calls else ()
    lost = lost_gaps(nvml, gpu) if isinstance(nvml, NvmlReading) else ()
    gap = min((*gaps, *lost), key=lambda gap: GRAVITY.get(gap.code, 2), default=None)
    lines = (evidence(gap),) if gap and gap.code in LOST else dict.fromkeys(map(evidence, gaps))
    subject = about(check, gpu, *lines)
    if gap is None:
        return subject.unknown("nvml.no-result", what=what, calls=tuple(dict.fromkeys(calls)))
    code, values = refusal(check, gap, what)
    if gap.code in (NOT_IN_LIBRARY, DEPRECATED):
        return subject.skips(code, **values)
    return None if gap.absent else subject.unknown(code, because_of="inventory" if gap.code in LOST else None, **values)


def evidence(gap: NvmlGap) -> str:
    return f"{gap.call} {gap.subject}: {gap.name if gap.code == DEFECT else f'{gap.code} {gap.name}'}"


def not_looked(check: str, failure: NvmlFailure) -> Finding:
    """Return UNKNOWN: without NVML there is no evidence, and no evidence is not a pass."""
    line = f"{failure.call}: {failure.code} {failure.name} {failure.detail}".rstrip()
    return Subject(check=check, evidence=(line,)).unknown(
        "nvml.not-available", "NVML not available", because_of="driver", call=failure.call, error=failure.name
    )


def no_gpus(check: str) -> Finding:
    """Return UNKNOWN: NVML works and lists nothing."""
    return Subject(check=check).unknown("nvml.no-gpus", "0 GPUs", "1 or more", because_of="inventory")


def no_gpu_on_the_bus(check: str) -> Finding:
    """Return UNKNOWN: sysfs shows no NVIDIA GPU. The inventory check compares sysfs with NVML."""
    return Subject(check=check).unknown("nvml.none-on-the-bus", "0 GPUs", because_of="inventory")


def all_passed_through(subject: Subject, gpus: Sequence[PciDevice]) -> Finding:
    """Return UNKNOWN: the host has no GPU of its own."""
    return subject.unknown("gpu.all-passed-through", "0 GPUs", count=len(gpus), driver=gpus[0].driver)


def some_passed_through(subject: Subject, gpus: Sequence[PciDevice]) -> Finding:
    """Return the SKIP of what does not apply to GPUs of virtual machines."""
    return subject.skips("gpu.some-passed-through", count=len(gpus), driver=gpus[0].driver)


def set_by_the_host(check: str, virtual: str, subject: str = "host", evidence: tuple[str, ...] = ()) -> Finding:
    """Return the SKIP of a check in a virtual machine. One code for all: a report shows it once."""
    return Subject(check=check, name=subject, evidence=evidence).skips("nvml.set-by-the-host", virtual=virtual)
