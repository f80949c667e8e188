"""Run collectives on this host: choose ranks, launch, run again without NVLS if NCCL chose it, report."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

import msgspec

from gpucheck.knowledge.codes import Subject
from gpucheck.measure.collectives.values import ALL, ErrorKind, MeasuredCollective, RankOptions, RankReport, bus_factor
from gpucheck.measure.planning.selection import Unmeasurable, admit, choose
from gpucheck.measure.reporting.observed import count_text
from gpucheck.measure.reporting.surroundings import NEEDS, Scene, surroundings
from gpucheck.measure.values import spread
from gpucheck.model import Finding, Gpu, NvmlReading, Verdict, worst
from gpucheck.model.collectives import CollectiveResult, CollectivesReport
from gpucheck.model.diagnosis import observations
from gpucheck.model.diagnosis.observations import Collective, Hang, Observations
from gpucheck.model.facts import Source
from gpucheck.processes.environment import nccl_files, rank_environment
from gpucheck.processes.exhausted import exhausted, limit_in_force
from gpucheck.processes.ranks.nccl_log import Taken, error_text
from gpucheck.processes.ranks.nodes import Nodes
from gpucheck.processes.ranks.rank import RankError
from gpucheck.processes.ranks.supervisor import RankRun, Reason, supervise
from gpucheck.processes.signals import FAULTS, signal_name, undisturbed
from gpucheck.topology import of

PROGRAM = ("gpucheck.measure.collectives.rank",)
OUTPUT_CHARACTERS = 400
Cause = Literal["finished", "failed", "deadline", "interrupted"]
REASONS: dict[Reason, Cause] = {
    "finished": "finished",
    "broken": "failed",
    "stalled": "deadline",
    "deadline": "deadline",
    "interrupted": "interrupted",
}


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended. where: by rank, its last progress. notes: what was changed in the environment of the ranks.

    signals: signal number of each terminated rank. stacks: calls of each rank that hung, innermost first.
    stopped: the signal that interrupted the run, whose reports are of a part.
    """

    reason: Cause
    seconds: float
    ranks: int
    reports: tuple[RankReport, ...] = ()
    errors: dict[int, RankError] = msgspec.field(default_factory=dict)
    where: dict[int, str] = msgspec.field(default_factory=dict)
    signals: dict[int, int] = msgspec.field(default_factory=dict)
    stacks: dict[int, tuple[str, ...]] = msgspec.field(default_factory=dict)
    taken: Taken = Taken()
    notes: tuple[str, ...] = ()
    output: str = ""
    stopped: Any = None  # an exception


def launch(options: RankOptions, here: int, *, keep: bool = False, **extra: str) -> Ended:
    """Run the ranks of this host. here: ranks on each host. keep: as for supervise. extra: environment of the ranks.

    No process and no file is left. Raises OSError if no process can be started.
    """
    nodes = options.nodes
    environment, removed = ranks_environment(os.environ, nodes)
    home = Path(environment.get("HOME", "/"))
    settings = nccl_files(home, several_hosts=_several(nodes)) if options.backend == "nccl" else ()
    processes = here * (nodes.count if nodes else 1)
    each, most = options.timeout_s, len(options.operations) * len(options.sizes) * ROUNDS
    ranks = RankRun(
        name="collectives",
        program=PROGRAM,
        options=options,
        report=RankReport,
        processes=processes,
        nodes=nodes,
        timeout_s=START_S + each * most,
        is_stalled=_stalled(each),
        keep=keep,
    )
    ending = supervise(ranks, environment | extra)
    ends = ending.ranks
    printed = "\n".join(line for end in ends for line in end.output)[-OUTPUT_CHARACTERS:]
    shortage = limit_in_force(here) if ending.reason in ("broken", "stalled", "deadline") else None
    return Ended(
        reason=REASONS[ending.reason],
        seconds=ending.seconds,
        ranks=processes,
        reports=tuple(one for end in ends if (one := end.part if ending.signal else end.report) is not None),
        errors={end.rank: end.error for end in ends if end.error is not None},
        where={end.rank: msgspec.json.decode(end.progress) if end.progress else "start" for end in ends},
        signals={end.rank: -end.status for end in ends if end.status is not None and end.status < 0},
        stacks={end.rank: end.stack for end in ends if end.stack} if ending.reason in ("stalled", "deadline") else {},
        taken=ending.taken,
        notes=(
            *(f"environment variable removed for the ranks: {pair}" for pair in removed),
            *(f"NCCL setting that the ranks follow, from {setting}" for setting in settings),
        ),
        output="\n".join(filter(None, (printed, shortage))),
        stopped=ending.signal,
    )


def _stalled(timeout_s: float) -> Callable[[Sequence[bytes], float], bool]:
    """Return whether no rank has begun another round of a collective for so long; the start has a limit of its own."""
    seen: tuple[bytes, ...] = ()
    since = 0.0

    def is_stalled(progress: Sequence[bytes], now: float) -> bool:
        nonlocal seen, since
        if tuple(progress) != seen:
            seen, since = tuple(progress), now
        return now - since > (timeout_s if b"," in b"".join(seen) else START_S)

    return is_stalled


def ranks_environment(caller: Mapping[str, str], nodes: Nodes | None) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the environment of the ranks, and ``NAME=value`` of each variable of the caller that was removed."""
    # On one host loopback always resolves, the host's own name often does not.
    interface = "lo" if nodes is None else nodes.interface
    return rank_environment(caller, interface=interface, several_hosts=_several(nodes))


def _several(nodes: Nodes | None) -> bool:
    return nodes is not None and nodes.interface != "lo"


# Errors that are unrelated to links and NCCL.
UNKNOWN: Mapping[ErrorKind | str, str] = {
    "defect": "measure.rank-defect",
    "no-resources": "measure.rank-no-resources",
    "no-device": "measure.rank-no-device",
}
RANKS = Subject(check="collectives")


def gaps(runs: Mapping[str, Ended], results: Sequence[CollectiveResult], *, gpus: bool) -> tuple[Finding, ...]:
    """Return findings on ranks that ended early, and on what was compared. gpus: False for ranks on CPUs."""
    findings = [finding for ended in runs.values() for finding in _ending(ended)]
    ranks = next((ended.ranks for ended in runs.values()), 0)
    return (*findings, *_correctness(results, count_text(ranks, "GPU" if gpus else "CPU rank"), gpus=gpus))


def _ending(ended: Ended) -> Iterator[Finding]:
    missing = next((error.missing for error in ended.errors.values() if error.missing), None)
    if missing is not None:
        yield RANKS.skips("measure.ranks-need-package", f"not run: Python package {missing} is not installed")
    elif ended.reason == "deadline" and exhausted(ended.output):
        seen = f"the remaining collectives unknown: no end after {ended.seconds:.0f} s"
        yield RANKS.with_evidence(ended.output).unknown(UNKNOWN["no-resources"], seen)
    elif ended.reason == "deadline":
        places = "; ".join(f"rank {rank}: {step}" for rank, step in sorted(ended.where.items()))
        calls = (f"rank {rank} is in {frame}" for rank, stack in sorted(ended.stacks.items()) for frame in stack[:3])
        seen = f"the remaining collectives unknown: no end after {ended.seconds:.0f} s: {places}"
        evidence = (*calls, *([ended.output] if ended.output else []))
        yield RANKS.with_evidence(*evidence).unknown("measure.ranks-wait", seen)
    elif ended.reason == "failed":
        yield _failed(ended)
    elif ended.reason == "interrupted":
        yield RANKS.unknown("measure.collectives-interrupted", "interrupted: the remaining collectives unknown")


def _failed(ended: Ended) -> Finding:
    errors = sorted(ended.errors.items(), key=lambda item: item[1].raised)
    lines = [f"rank {rank} was terminated by {signal_name(number)}" for rank, number in ended.signals.items()]
    lines += [f"rank {rank} failed: {error_text(e.message)} [{e.type}]" for rank, e in errors]
    first = lines[0] if lines else "a rank ended without reporting an error"
    places = tuple(f"rank {rank} was at: {at}" for rank, at in sorted(ended.where.items()))
    printed = (ended.output,) if ended.output else ()
    subject = RANKS.with_evidence(*lines[1:], *places, *ended.taken.warnings, *printed)
    if any(number not in FAULTS for number in ended.signals.values()):
        return subject.unknown("measure.rank-killed", f"collectives unknown: {first}")
    kind = errors[0][1].kind if errors and not ended.signals else "collective"
    if kind == "collective" and exhausted(ended.output):
        kind = "no-resources"
    if kind in UNKNOWN:
        return subject.unknown(UNKNOWN[kind], f"collectives unknown: {first}")
    return subject.fails("measure.rank-failed", first)


def _correctness(results: Sequence[CollectiveResult], where: str, *, gpus: bool) -> Iterator[Finding]:
    """Wrong elements of GPU ranks are observations, which ``diagnose`` evaluates."""
    wrong = [result for result in results if result.wrong]
    checked = sum(result.checked for result in results)
    subject = Subject(
        check="collectives-results",
        evidence=tuple(f"{r.operation} {r.size_bytes} bytes ({r.variant}): {r.wrong} wrong" for r in wrong),
    )
    if wrong and not gpus:
        seen = f"{count_text(sum(result.wrong for result in wrong), 'element')} wrong between CPU ranks"
        yield subject.fails("measure.cpu-ranks-wrong", seen, 0)
    elif checked and not wrong:
        yield subject.passes(f"{count_text(checked, 'collective')} exact on {where}, every element of every rank")
    elif not checked:
        yield subject.unknown("measure.no-collective", "results of collectives unknown: 0 checked")


def measured(
    runs: Mapping[str, Ended], results: Sequence[CollectiveResult], gpus: int, *, several_hosts: bool
) -> observations.Measured:
    """Return a row for each result. gpus: GPUs of this host, one per rank.

    Only the largest size has a bandwidth, and only if the network between hosts was not used.
    """
    largest = max((result.size_bytes for result in results), default=0)
    rows = tuple(
        Collective(
            op=result.operation,
            ranks=runs[result.variant].ranks,
            bytes=result.size_bytes,
            busbw_gb_s=result.busbw_gb_s if result.size_bytes == largest and not several_hosts else None,
            transport=_transport(runs[result.variant], result),
            wrong=result.wrong if result.checked else None,
        )
        for result in results
    )
    hung = next((ended for ended in runs.values() if ended.reason == "deadline"), None)
    hang = Hang(op=_stuck_in(hung), gpus=tuple(range(gpus))) if hung is not None else None
    return observations.Measured(collectives=rows, hang=hang)


def _transport(ended: Ended, result: CollectiveResult) -> str | None:
    chosen = ended.taken.chosen("AllReduce")
    if result.operation == "all_reduce" and any(algorithm.startswith("NVLS") for algorithm in chosen):
        return "NVLS"
    kinds = sorted(ended.taken.transports)
    return next((kind for start in ("NET", "SHM", "P2P") for kind in kinds if kind.startswith(start)), None)


def _stuck_in(ended: Ended) -> str | None:
    names = [step.split()[0] for _, step in sorted(ended.where.items()) if step.split()]
    return next((name for name in names if name in ALL), None)


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# A large size shows bandwidth (below 1 GiB NVLink is not filled), a small one latency; their average is meaningless.
SIZES = {"cpu": (64 * KIB, MIB), "pcie": (8 * KIB, 128 * MIB), "nvlink": (8 * KIB, GIB)}
# GB/s of a ring -> the large size: with a smaller message on eight GPUs, starting takes more than a twentieth of the
# time, and it is not evaluated. Checking takes nine times as much memory; GPUs with such links have it.
LARGE = ((600.0, 4 * GIB), (300.0, 2 * GIB))
CPU_RANKS = 2
PLACES = 6  # a small collective between CPU ranks moves less than a megabyte a second
CPU_ITERATIONS = 3
START_S = 60.0  # importing torch and joining the others
ROUNDS = 8  # of one collective at one size: the warm-up, and the samples


class CollectiveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one run. sizes: empty chooses by the links of the host. ranks: None is every GPU, two without GPUs."""

    operations: tuple[str, ...] = tuple(ALL)
    sizes: tuple[int, ...] = ()
    ranks: int | None = None
    devices: str | None = None
    timeout_s: float = 60.0
    contended: bool = False
    nodes: Nodes | None = None


class _Ranks(msgspec.Struct, frozen=True, kw_only=True):
    """scene: the host as it was read, None for CPU ranks. ring_gb_s: expected GB/s of a ring over NVLinks."""

    gpus: tuple[Gpu, ...]
    count: int
    reason: str
    sizes: tuple[int, ...]
    scene: Scene | None = None
    ring_gb_s: float | None = None


def measure(
    source: Source, options: CollectiveOptions, keep: Callable[[CollectivesReport], None] | None = None
) -> CollectivesReport:
    """Run every collective at every size. Raises Unmeasurable if the options cannot be met.

    keep: gets the report as soon as it is made: of what was measured when a signal ends the run, too.

    The findings list what could not be run or compared; ``diagnose`` evaluates links.
    """
    started, clock = datetime.now(timezone.utc), time.monotonic()
    facts, ranks = source.read("system", "simulation"), _ranks(source, options)
    chosen = RankOptions(
        backend="nccl" if ranks.gpus else "gloo",
        operations=options.operations,
        sizes=options.sizes or ranks.sizes,
        bus_ids=tuple(gpu.pci_bus_id for gpu in ranks.gpus),
        iterations=20 if ranks.gpus else CPU_ITERATIONS,
        timeout_s=options.timeout_s,
        nodes=options.nodes,
    )
    alone = ranks.count == 1 and options.nodes is None
    runs = (
        {"as is": Ended(reason="finished", seconds=0.0, ranks=1)}
        if alone
        else _runs(chosen, ranks.count, keep=keep is not None)
    )
    with undisturbed():
        ended = runs["as is"]
        results = tuple(
            _result(one, run.ranks, name, ranks.ring_gb_s)
            for name, run in runs.items()
            for one in (run.reports[0].measured if run.reports else ())
        )
        findings = (_one_rank(ranks),) if alone else gaps(runs, results, gpus=bool(ranks.gpus))
        seen = Observations()
        if ranks.scene is not None and not alone:
            rows = measured(runs, results, len(ranks.gpus), several_hosts=options.nodes is not None)
            seen = msgspec.structs.replace(surroundings(ranks.scene), measured=rows)
        counts = Counter(finding.verdict for finding in findings)
        first = ended.reports[0] if ended.reports else None
        made = CollectivesReport(
            host=facts.system.hostname,
            simulated=facts.simulation is not None,
            simulation=facts.simulation,
            backend=chosen.backend,
            kind=ranks.reason,
            ranks=ended.ranks,
            nodes=options.nodes.count if options.nodes else 1,
            devices=tuple(f"{report.device} {report.device_name or ''}".strip() for report in ended.reports),
            versions=first.versions if first else {},
            started=started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - clock, 3),
            results=results,
            transports=ended.taken.transports,
            algorithms=ended.taken.algorithms,
            notes=ended.notes,
            observations=seen,
            verdict=worst(counts),
            findings=findings,
            counts={verdict.value: counts[verdict] for verdict in Verdict},
        )
        if keep is not None and not (ended.stopped and not ended.reports):
            keep(made)
    stopped = next((run.stopped for run in runs.values() if run.stopped is not None), None)
    if stopped is not None:
        raise stopped
    return made


def _runs(options: RankOptions, count: int, *, keep: bool) -> dict[str, Ended]:
    """Return the run, and one without NVLS if NCCL chose it. Raises Unmeasurable if no process can be started."""
    try:
        runs = {"as is": launch(options, count, keep=keep)}
        chosen = runs["as is"].taken.chosen("AllReduce")
        nvls = any(algorithm.startswith("NVLS") for algorithm in chosen)
        if nvls and options.nodes is None and runs["as is"].stopped is None:
            only = msgspec.structs.replace(options, operations=("all_reduce",), sizes=options.sizes[-1:])
            runs["ring"] = launch(only, count, keep=keep, NCCL_NVLS_ENABLE="0")
    except OSError as error:
        raise Unmeasurable(RANKS.unknown("measure.ranks-not-started", f"no rank could be started: {error}")) from error
    return runs


def _one_rank(ranks: _Ranks) -> Finding:
    subject = RANKS.with_evidence(*(f"GPU {gpu.index} ({gpu.pci_bus_id})" for gpu in ranks.gpus))
    return subject.skips("measure.one-rank", "not run: 1 GPU, so nothing could be checked")


def _ranks(source: Source, options: CollectiveOptions) -> _Ranks:
    facts, topology = source.read(*NEEDS, "simulation"), of(source)
    reading, simulated = facts.nvml, facts.simulation is not None
    if simulated or not isinstance(reading, NvmlReading) or topology is None or not reading.gpus:
        why = "the GPUs of this host are simulated" if simulated else "no GPU responds on this host"
        if options.devices is not None:
            code = "measure.ranks-gpus-simulated" if simulated else "measure.ranks-no-gpu"
            raise Unmeasurable(RANKS.unknown(code, f"--devices {options.devices}"), usage=True)
        count = options.ranks or CPU_RANKS
        reason = f"{count} CPU ranks on this host, gloo: {why}; real traffic, but no GPU"
        return _Ranks(gpus=(), count=count, reason=reason, sizes=SIZES["cpu"])
    gpus = choose(reading.gpus, options.devices).gpus
    admit(gpus, contended=options.contended)
    if options.ranks is not None and options.ranks > len(gpus):
        seen = f"--ranks {options.ranks}"
        raise Unmeasurable(RANKS.unknown("measure.more-ranks-than-gpus", seen, gpus=len(gpus)), usage=True)
    gpus = gpus[: options.ranks]
    scene = Scene.of(facts, gpus, reading, topology)
    ring_gb_s = _ring_gb_s(scene)
    reason = f"{count_text(len(gpus), 'GPU')} on this host, NCCL"
    return _Ranks(gpus=gpus, count=len(gpus), reason=reason, sizes=_sizes(ring_gb_s), scene=scene, ring_gb_s=ring_gb_s)


def _sizes(ring_gb_s: float | None) -> tuple[int, ...]:
    if ring_gb_s is None:
        return SIZES["pcie"]
    small, large = SIZES["nvlink"]
    return small, next((size for rate, size in LARGE if ring_gb_s >= rate), large)


def _ring_gb_s(scene: Scene) -> float | None:
    """Return the GB/s of a ring: its slowest link, or all links of a GPU with NVSwitch. None without NVLink."""
    chosen = {gpu.index for gpu in scene.gpus}
    pairs = [pair for pair in scene.topology.pairs if pair.a in chosen and pair.b in chosen]
    rates = [pair.expected for pair in pairs]
    if not rates or len({pair.cls for pair in pairs}) > 1 or not str(pairs[0].cls).startswith("NV"):
        return None
    # On a board of direct links a ring uses the links to one neighbor in each direction; other rings use the others.
    return rates[0].unidirectional_gb_s if all(rates) and rates[0] is not None else None


def _result(one: MeasuredCollective, ranks: int, variant: str, ring_gb_s: float | None) -> CollectiveResult:
    times = spread(one.seconds)
    algorithm = one.size / times.median / 1e9
    bus = algorithm * bus_factor(one.operation, ranks)
    return CollectiveResult(
        operation=one.operation,
        size_bytes=one.size,
        variant=variant,
        time_us=round(times.median * 1e6, 2),
        mad_percent=round(100 * times.mad / times.median, 2),
        algbw_gb_s=round(algorithm, PLACES),
        busbw_gb_s=round(bus, PLACES),
        expected_busbw_gb_s=ring_gb_s,
        checked=one.checked,
        wrong=one.wrong,
    )
