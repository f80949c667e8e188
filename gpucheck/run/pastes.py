"""Pasted text to its diagnosis: parts of one machine together, each to the judge that judges a live host."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gpucheck.checks.kernel import log as kernel_log
from gpucheck.diagnose import ObservationProblem, judge, together
from gpucheck.diagnose.combine import joined, listed
from gpucheck.diagnose.messages import of_messages
from gpucheck.model import KernelLog, NvmlReading, TopologyGpu, Verdict, named, worst
from gpucheck.model.diagnosis import Diagnosis
from gpucheck.model.finding import Finding
from gpucheck.model.observations import Measured, Method, Observations, ObservedGpu
from gpucheck.model.paste import Part, Reading, ReadRange
from gpucheck.model.ranking import Judgement
from gpucheck.run import pasted_host

MOST_LINES = 500_000
NOTHING_TO_LINKS = Observations()


class TwoMachines(ValueError):
    """Parts that cannot be of one machine. As text it is one line that names both places and what to do."""


def diagnosis(
    readings: Sequence[Reading],
    given: Observations | None = None,
    *,
    sources: tuple[str, ...],
    model: str | None = None,
    machine: str | None = None,
    strict: bool = False,
) -> Diagnosis:
    """Judge all inputs as one machine.

    given: observations of the user's own. model: of GPUs whose model no input names. machine: the host whose parts
    count, where the inputs name several. Raises TwoMachines.
    """
    parts = _of_one_machine([part for reading in readings for part in reading.parts], machine)
    seen = _observations(parts, given or NOTHING_TO_LINKS, model)
    # ECC, row remapping, throttling, MIG, limits: what nvidia-smi says of each GPU, judged as on a live host.
    state = pasted_host.findings(parts)
    judgement = pasted_host.of_links(judge(seen), seen, state) if _says_something(seen) else Judgement(findings=())
    logs = _kernel_log(parts)
    findings: list[Finding] = []
    findings += judgement.findings
    findings += kernel_log.evaluate(kernel_log.Values(log=logs, gpus=_bus_ids(seen))) if logs is not None else ()
    findings += of_messages(message for part in parts for message in part.messages)
    findings += state
    # Where no bus id was given, the subject is GPU and its position. A part of a table has the driver's own numbers.
    numbers = {
        gpu.pci_bus_id: gpu.index for part in parts if isinstance(part.nvml, NvmlReading) for gpu in part.nvml.gpus
    }
    listed = [
        TopologyGpu(index=numbers.get(gpu.bus_id or "", i), pci_bus_id=gpu.bus_id or f"GPU{i}")
        for i, gpu in enumerate(seen.gpus)
    ]
    found = named(findings, listed) or (_nothing_judged(),)
    verdicts = [finding.verdict for finding in found]
    return Diagnosis(
        verdict=worst(verdicts, strict=strict),
        source=sources,
        machine=next((part.machine for part in parts if part.machine), None),
        gpus=max(len(seen.gpus), len(kernel_log.gpus_named(logs)) if logs is not None else 0),
        findings=tuple(found),
        counts={verdict.value: verdicts.count(verdict) for verdict in Verdict},
        read=tuple(one for part in parts for one in part.ranges),
        unread=tuple(one for reading in readings for one in reading.unread),
        observations=seen,
        looked_at=tuple(dict.fromkeys(words for part in parts for words in part.looked_at)),
        unproven=_unproven(seen),
        ranking=judgement.ranking,
        gpu_names=judgement.gpus,
        decided=judgement.decided,
    )


def _of_one_machine(parts: list[Part], machine: str | None) -> list[Part]:
    """The parts of the machine that was asked for; parts that name none belong to it. Raises TwoMachines."""
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


def _short(host: str) -> str:
    """A host's name without its domain; an address as it is."""
    return host.lower() if host[:1].isdigit() or ":" in host else host.lower().partition(".")[0]


def _observations(parts: Iterable[Part], given: Observations, model: str | None) -> Observations:
    """All parts as one set of observations. Raises TwoMachines with both places."""
    seen, before = given, "--observations"
    parts = [part for part in parts if part.observations != NOTHING_TO_LINKS]
    whole = pasted_host.listed_last(part for part in parts if not part.partial)
    most = max([len(given.gpus), *(len(part.observations.gpus) for part in whole)])
    for part in whole:
        try:
            seen = together(seen, _of_all_gpus(pasted_host.placed(part, seen), most))
        except ObservationProblem as problem:
            raise TwoMachines(f"{_place(part)}: {problem.what}. Read before: {before}") from problem
        before = _place(part)
    seen = listed(joined(seen), [part.observations for part in parts if part.partial])
    if model is not None:
        gpus = seen.gpus or tuple(ObservedGpu() for _ in seen.matrix or ())
        seen = replace(seen, gpus=tuple(replace(gpu, model=gpu.model or model) for gpu in gpus))
    return seen


def _of_all_gpus(seen: Observations, count: int) -> Observations:
    """A result of single GPUs, as bandwidthTest gives it, does not say how many there are: the others follow."""
    only = Observations(gpus=seen.gpus, measured=Measured(host_device=seen.measured.host_device))
    says_nothing_else = replace(seen, measured=replace(seen.measured, method=Method())) == only
    if not seen.measured.host_device or not says_nothing_else or len(seen.gpus) >= count:
        return seen
    return replace(seen, gpus=(*seen.gpus, *(ObservedGpu() for _ in range(count - len(seen.gpus)))))


def _place(part: Part) -> str:
    one: ReadRange = part.ranges[0]
    return f"{one.source} lines {one.first_line}-{part.ranges[-1].last_line} ({one.kind})"


def _kernel_log(parts: Iterable[Part]) -> KernelLog | None:
    logs = [part.kernel for part in parts if part.kernel is not None]
    if not logs:
        return None
    lines = tuple(line for log in logs for line in log.lines)[-MOST_LINES:]
    return replace(logs[0], lines=lines)


def _bus_ids(seen: Observations) -> tuple[str, ...]:
    return tuple(gpu.bus_id for gpu in seen.gpus if gpu.bus_id)


def _says_something(seen: Observations) -> bool:
    """Whether there is anything to judge but the names of GPUs."""
    return replace(seen, gpus=()) != NOTHING_TO_LINKS or any(
        replace(gpu, model=None, bus_id=None, numa_node=None) != ObservedGpu() for gpu in seen.gpus
    )


def _unproven(seen: Observations) -> tuple[str, ...]:
    """What readiness for training needs and no input says."""
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


def _nothing_judged() -> Finding:
    return Finding(
        check="paste",
        verdict=Verdict.UNKNOWN,
        subject="host",
        why="the input was read, and holds nothing that says whether the machine works",
        fix="add what was measured, or the kernel log: sudo dmesg",
    )
