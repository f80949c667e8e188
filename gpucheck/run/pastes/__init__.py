"""Diagnose pasted text: parts of one host together, each evaluated like that of a live host."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpucheck.checks import all_checks
from gpucheck.checks.kernel import log as kernel_log
from gpucheck.checks.network import address as nic_address
from gpucheck.checks.network import counters as nic_counters
from gpucheck.checks.network import ports as nic_ports
from gpucheck.checks.nvlink import fabric
from gpucheck.diagnose import diagnose
from gpucheck.knowledge.causes import with_actions
from gpucheck.knowledge.codes import Subject
from gpucheck.model import (
    Finding,
    Gpu,
    NotRecorded,
    NvmlReading,
    TopologyGpu,
    Verdict,
    counted,
    worst,
)
from gpucheck.model.diagnosis import Diagnosis, UnreadRange
from gpucheck.model.diagnosis.observations import Observations, ObservedGpu, ObservedHost
from gpucheck.model.facts import Facts
from gpucheck.model.finding import identity
from gpucheck.model.paste import Part, Reading
from gpucheck.run.conclusion import conclude
from gpucheck.run.pastes.about import damaged, no_evidence, no_host, of_messages, too_many
from gpucheck.run.pastes.merge import NOTHING, Merged, bus_ids_by_index, has_bus_id, has_index, merged

__all__ = ["NoSuchMachine", "diagnosis"]

# No fault of a host whose output was pasted.
PERSISTENCE = "persistence"
LINKS = "nvlink-links"  # the check name of gpucheck.diagnose
DROPPED = (Verdict.SKIP, Verdict.UNKNOWN)
NOT_MEASURED = "copies.nothing-measured"
MOST_SPLIT = 32  # machines that one host's parts are divided into, since they do not fit


class NoSuchMachine(ValueError):
    """The requested host is in no input. As text it is one line that names those that are."""


class HostParts(NamedTuple):
    """The parts of one host. name: as the input prints it, None if nothing names the host."""

    name: str | None
    parts: list[Part]


def of_machine(parts: Sequence[Part], machine: str) -> HostParts:
    """Return the parts of the requested host; parts of no known host belong to it. Raises NoSuchMachine."""
    hosts = by_host(parts)
    names = {short(one.name): one.name for one in hosts if one.name}
    if short(machine) not in names:
        have = f"The inputs name {', '.join(names.values())}" if names else "The inputs name no machine"
        raise NoSuchMachine(f"no part of the input is of {machine}. {have}")
    name = names[short(machine)]
    return HostParts(name, [part for one in hosts if one.name in (name, None) for part in one.parts])


def by_host(parts: Sequence[Part]) -> list[HostParts]:
    """Return the parts of each host that is named, in order, then those that name none.

    With one name all parts are of that host. Else a part without a name is of the only host that its input names.
    """
    name_of = _naming(parts)
    names = {short(name): name for part in parts if (name := name_of(part))}
    if len(names) < 2:
        return [HostParts(next(iter(names.values()), None), list(parts))]
    of_source: dict[str, set[str]] = {}
    for part in parts:
        if name := name_of(part):
            of_source.setdefault(_source(part), set()).add(short(name))
    found: dict[str | None, list[Part]] = {name: [] for name in names}
    for part in parts:
        name = name_of(part)
        only = of_source.get(_source(part), set())
        key = short(name) if name else next(iter(only)) if len(only) == 1 else None
        found.setdefault(key, []).append(part)
    return [HostParts(names.get(key or ""), mine) for key, mine in found.items()]


def short(host: str) -> str:
    """A host's name without its domain; an address as it is."""
    return host.lower() if host[:1].isdigit() or ":" in host else host.lower().partition(".")[0]


def _naming(parts: Sequence[Part]) -> Callable[[Part], str | None]:
    """How a part names its host. A name that a job printed may be a container's: it only counts if no other does."""
    if any(part.machine for part in parts):
        return lambda part: part.machine
    jobs = {short(part.ran_on) for part in parts if part.ran_on}
    return (lambda part: part.ran_on) if len(jobs) > 1 else lambda _: None


def _source(part: Part) -> str:
    return part.ranges[0].source if part.ranges else ""


def diagnosis(
    readings: Sequence[Reading],
    given: Observations | None = None,
    *,
    sources: tuple[str, ...],
    model: str | None = None,
    machine: str | None = None,
) -> Diagnosis:
    """Evaluate all inputs: as one host, or each host by itself where they are of several.

    given: observations of the user's own. model: of GPUs whose model no input names. machine: the host whose parts
    count, where the inputs name several. Raises NoSuchMachine.
    """
    parts = [part for reading in readings for part in reading.parts]
    hosts = [of_machine(parts, machine)] if machine is not None else by_host(parts)
    if given is not None and len(hosts) > 1 and hosts[-1].name is not None:
        hosts.append(HostParts(None, []))
    unread = tuple(one for reading in readings for one in reading.unread)
    findings = list(damaged(unread))
    answers: list[Diagnosis] = []
    for one in hosts:
        if one.name is None and len(hosts) > 1 and one.parts:
            findings.append(no_host(one.parts))
        mine = [Part(facts=Facts(observed=given))] if given is not None and one is hosts[-1] else []
        for found in _machines([*mine, *one.parts], model):
            findings += found.split
            answers.append(_answer(found, one.name, sources))
    if len(answers) == 1:
        return _with(answers[0], findings, unread=unread)
    every = Diagnosis(
        verdict=Verdict.UNKNOWN,
        source=sources,
        gpus=sum(one.gpus for one in answers),
        findings=(),
        counts={},
        read=tuple(row for one in answers for row in one.read),
        machines=tuple(answers),
    )
    return _with(every, findings, unread=unread)


def _with(answer: Diagnosis, findings: list[Finding], *, unread: tuple[UnreadRange, ...]) -> Diagnosis:
    found = (*answer.findings, *with_actions(findings))
    every = (*found, *(row for machine in answer.machines for row in machine.findings))
    verdict = worst(one.verdict for one in every)
    return replace(answer, verdict=verdict, findings=found, counts=counted(every), unread=unread)


def _machines(parts: Sequence[Part], model: str | None) -> Iterator[Merged]:
    """The parts of one host; parts that cannot be of the same machine as the others are one by themselves."""
    for _ in range(MOST_SPLIT):
        found = merged(parts, model)
        yield found
        parts = found.others
        if not parts:
            return
    yield Merged(findings=(too_many(parts),))


def _answer(found: Merged, name: str | None, sources: tuple[str, ...]) -> Diagnosis:
    seen, log, parts = found.facts.observed, found.facts.kernel_log, found.parts
    # ECC, row remapping, throttling, MIG, limits: what nvidia-smi reports of each GPU, evaluated as on a live host.
    state = _of_state(parts, found.facts)
    findings = list(_of_links(found))
    only_lists = replace(seen, gpus=(), matrix=None, host=ObservedHost(), environment={}) == NOTHING
    if only_lists and (state or any(gpu.nvlinks.total for gpu in seen.gpus)):
        findings = [one for one in findings if one.code != NOT_MEASURED]  # nor was it meant to be
    findings += kernel_log.of_log(log, (gpu.bus_id for gpu in seen.gpus if gpu.bus_id)) if log else ()
    findings += of_messages(message for part in parts for message in part.messages)
    findings += (*nic_ports.of_printed(found.facts.rdma or ()), *nic_address.of_printed(found.facts.rdma or ()))
    findings += nic_counters.of_printed(one for part in parts for one in part.facts.counters or ())
    findings += state
    # Where no bus id was given, the subject is GPU and its position. A part of a table has the driver's own numbers.
    numbers = {
        gpu.pci_bus_id: gpu.index
        for part in parts
        if isinstance(part.facts.nvml, NvmlReading)
        for gpu in part.facts.nvml.gpus
    }
    listed = [
        TopologyGpu(index=numbers.get(gpu.bus_id or "", i), pci_bus_id=gpu.bus_id or f"GPU{i}")
        for i, gpu in enumerate(seen.gpus)
    ]
    findings = [one for one in findings if one.code != NOT_MEASURED or seen.gpus]
    own = (*(findings or (no_evidence(parts),)), *found.findings)
    concluded, verdict, counts = conclude(own, listed)
    return Diagnosis(
        verdict=verdict,
        source=sources,
        machine=name,
        gpus=max(len(seen.gpus), len(kernel_log.gpus_named(log)) if log else 0),
        findings=concluded,
        counts=counts,
        read=tuple(one for part in parts for one in part.ranges),
        observations=seen,
        looked_at=tuple(dict.fromkeys(words for part in parts for words in part.looked_at)),
        unproven=_unproven(seen),
    )


def _of_links(found: Merged) -> tuple[Finding, ...]:
    seen = found.facts.observed
    bare = (replace(gpu, model=None, bus_id=None, numa_node=None) == ObservedGpu() for gpu in seen.gpus)
    findings = [] if replace(seen, gpus=()) == NOTHING and all(bare) else list(diagnose(seen))
    known = {(one.check, one.subject, one.cause, one.verdict) for one in findings}
    for seen in found.contrary:
        for one in diagnose(seen):
            key = (one.check, one.subject, one.cause, one.verdict)
            if one.verdict not in (Verdict.PASS, Verdict.SKIP) and key not in known:
                known.add(key)
                findings.append(one)
    return tuple(findings)


def _unproven(seen: Observations) -> tuple[str, ...]:
    measured = seen.measured
    some = len(seen.gpus) != 1
    missing = {
        "bandwidth between GPUs": some and measured.p2p_uni_gb_s is None and measured.p2p_bidir_gb_s is None,
        "that copies between GPUs arrive intact": some
        and measured.integrity_bad_pairs is None
        and measured.bytes_compared is None
        and not measured.damaged,
        "collectives": some and not measured.collectives,
        "a training run": True,
    }
    return tuple(words for words, is_missing in missing.items() if is_missing)


def _of_state(parts: Sequence[Part], host: Facts) -> tuple[Finding, ...]:
    """What the checks find in each part that speaks of GPUs in NVML's terms. PASS is kept where nothing is wrong.

    A check whose needs are not in the text is not evaluated: what is not in the text is neither a fault nor a pass.
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
        key = place if one.verdict is Verdict.PASS else identity(one)
        if key not in seen and not (one.verdict is Verdict.PASS and place in bad):
            seen.add(key)
            yield one
