"""Run collectives on this host: choose ranks, launch, run again without NVLS if NCCL chose it, report."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from gpucheck.knowledge.codes import Subject
from gpucheck.measure.collectives.rank import ALL, MeasuredCollective, RankOptions, RankReport, bus_factor
from gpucheck.measure.planning.selection import Unmeasurable, admit, choose
from gpucheck.measure.reporting.surroundings import NEEDS, Scene, surroundings
from gpucheck.measure.values import spread
from gpucheck.model import Gpu, NvmlReading
from gpucheck.model.answer import Clock
from gpucheck.model.collectives import Collected, CollectiveResult, CollectivesReport, EndKind, RanksEnd
from gpucheck.model.diagnosis import observations
from gpucheck.model.diagnosis.observations import Collective, Hang, Observations
from gpucheck.model.facts import Source
from gpucheck.printable import counted
from gpucheck.processes.environment import nccl_files, rank_environment
from gpucheck.processes.exhausted import exhausted
from gpucheck.processes.ranks.nccl_log import Taken, error_text
from gpucheck.processes.ranks.nodes import Nodes
from gpucheck.processes.ranks.supervisor import Ending, RankEnd, RankRun, supervise
from gpucheck.processes.signals import FAULTS, Cut, signal_name
from gpucheck.topology import of

PROGRAM = ("gpucheck.measure.collectives.rank",)
OUTPUT_CHARACTERS = 400
Ended = Ending[RankReport]


def launch(options: RankOptions, here: int, **extra: str) -> Ended:
    """Run the ranks of this host. here: ranks on each host. extra: environment of the ranks.

    No process and no file is left. Raises OSError if no process can be started.
    """
    nodes, each = options.nodes, options.timeout_s
    ranks = RankRun(
        name="collectives",
        program=PROGRAM,
        options=options,
        report=RankReport,
        processes=_all(here, nodes),
        nodes=nodes,
        timeout_s=START_S + each * len(options.operations) * len(options.sizes) * ROUNDS,
        # A round of a collective has a limit, and the start one of its own.
        stall_s=lambda progress: each if b"," in b"".join(progress) else START_S,
    )
    return supervise(ranks, rank_environment(os.environ, nodes)[0] | extra)


def _all(here: int, nodes: Nodes | None) -> int:
    """Return the ranks of all hosts."""
    return here * (nodes.count if nodes else 1)


def output_of(ended: Ended) -> str:
    """Return the end of what the ranks printed, and what the host lacked for them."""
    printed = "\n".join(line for end in ended.ranks for line in end.output)[-OUTPUT_CHARACTERS:]
    return "\n".join(filter(None, (printed, ended.shortage)))


def reports_of(ended: Ended) -> list[RankReport]:
    """Return the reports of the ranks, of a run that a signal ended those of a part."""
    return [one for end in ended.ranks if (one := end.part if ended.signal else end.report) is not None]


def place_of(end: RankEnd[RankReport]) -> str:
    return str(msgspec.json.decode(end.progress)) if end.progress else "start"


def _notes(options: RankOptions) -> tuple[str, ...]:
    """Return what was changed in the environment of the ranks, and what they take from files."""
    environment, removed = rank_environment(os.environ, options.nodes)
    home = Path(environment.get("HOME", "/"))
    settings = nccl_files(home, options.nodes) if options.backend == "nccl" else ()
    return (
        *(f"environment variable removed for the ranks: {pair}" for pair in removed),
        *(f"NCCL setting that the ranks follow, from {setting}" for setting in settings),
    )


RANKS = Subject(check="collectives")


def ends(runs: Iterable[Ended]) -> tuple[RanksEnd, ...]:
    """Return how the runs ended of which results are missing."""
    return tuple(end for ended in runs if (end := _end(ended)) is not None)


def _end(ended: Ended) -> RanksEnd | None:
    missing = next((error.missing for _, error in ended.errors if error.missing), None)
    output = output_of(ended)
    late = f"no end after {ended.seconds:.0f} s"
    if missing is not None:
        return RanksEnd(kind="missing-package", detail=f"Python package {missing} is not installed")
    if ended.is_late and exhausted(output):
        return RanksEnd(kind="no-resources", detail=late, partly=True, evidence=(output,))
    if ended.is_late:
        places = "; ".join(f"rank {end.rank}: {place_of(end)}" for end in ended.ranks)
        calls = (f"rank {end.rank} is in {frame}" for end in ended.ranks for frame in end.stack[:3])
        evidence = (*calls, *([output] if output else []))
        return RanksEnd(kind="waiting", detail=f"{late}: {places}", partly=True, evidence=evidence)
    if ended.reason == "interrupted":
        return RanksEnd(kind="interrupted", detail="interrupted", partly=True)
    return _failed(ended, output) if ended.reason == "broken" else None


def _failed(ended: Ended, output: str) -> RanksEnd:
    signals = {end.rank: -end.status for end in ended.ranks if end.status is not None and end.status < 0}
    lines = [f"rank {rank} was terminated by {signal_name(number)}" for rank, number in signals.items()]
    lines += [f"rank {end.rank} failed: {error_text(e.message)} [{e.type}]" for end, e in ended.errors]
    first = lines[0] if lines else "a rank ended without reporting an error"
    places = (f"rank {end.rank} was at: {place_of(end)}" for end in ended.ranks)
    evidence = (*lines[1:], *places, *ended.taken.warnings, *((output,) if output else ()))
    raised = ended.errors[0][1].kind if ended.errors and not signals else "collective"
    kind: EndKind = "failed" if raised == "collective" else raised  # type: ignore[assignment]  # an ErrorKind
    if any(number not in FAULTS for number in signals.values()):
        kind = "killed"
    elif kind == "failed" and exhausted(output):
        kind = "no-resources"
    return RanksEnd(kind=kind, detail=first, evidence=evidence)


def measured(
    runs: Mapping[str, Ended], results: Sequence[CollectiveResult], gpus: int, nodes: Nodes | None = None
) -> observations.Measured:
    """Return a row for each result. gpus: of this host, one per rank, and as many on each host.

    Only the largest size has a bandwidth, and only if the network between hosts was not used.
    """
    largest = max((result.size_bytes for result in results), default=0)
    rows = tuple(
        Collective(
            op=result.operation,
            ranks=_all(gpus, nodes),
            bytes=result.size_bytes,
            busbw_gb_s=result.busbw_gb_s if result.size_bytes == largest and nodes is None else None,
            transport=_transport(runs[result.variant], result),
            wrong=result.wrong if result.checked else None,
        )
        for result in results
    )
    hung = next((ended for ended in runs.values() if ended.is_late), None)
    if hung is None:
        return observations.Measured(collectives=rows)
    names = [step.split()[0] for end in hung.ranks if (step := place_of(end)).split()]
    stuck_in = next((name for name in names if name in ALL), None)
    return observations.Measured(collectives=rows, hang=Hang(op=stuck_in, gpus=tuple(range(gpus))))


def _transport(ended: Ended, result: CollectiveResult) -> str | None:
    chosen = ended.taken.chosen("AllReduce")
    if result.operation == "all_reduce" and any(algorithm.startswith("NVLS") for algorithm in chosen):
        return "NVLS"
    kinds = sorted(ended.taken.transports)
    return next((kind for start in ("NET", "SHM", "P2P") for kind in kinds if kind.startswith(start)), None)


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# A large size shows bandwidth (below 1 GiB NVLink is not filled), a small one latency; their average is meaningless.
SIZES = {"cpu": (64 * KIB, MIB), "pcie": (8 * KIB, 128 * MIB), "nvlink": (8 * KIB, GIB)}
# GB/s of a ring -> the large size: with a smaller message on eight GPUs, starting takes more than a twentieth of the
# time, and it is not evaluated. Checking takes nine times as much memory; GPUs with such links have it.
LARGE = ((600.0, 4 * GIB), (300.0, 2 * GIB))
AS_IS = "as is"  # the variant with what NCCL chooses
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
    source: Source,
    options: CollectiveOptions,
    evaluate: Callable[[Collected], CollectivesReport],
    keep: Callable[[CollectivesReport], None] = lambda _: None,
) -> CollectivesReport:
    """Run every collective at every size. Raises Unmeasurable if the options cannot be met.

    evaluate: returns the report with its findings.
    keep: gets the report as soon as it is made: of what was measured when a signal ends the run, too.
    """
    clock = Clock()
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
    runs = {} if alone else _runs(chosen, ranks.count)
    cut = Cut()
    cut.signal = next((run.signal for run in runs.values() if run.signal is not None), None)

    def collected() -> Collected:
        count = _all(ranks.count, options.nodes)
        reports = {name: reports_of(run) for name, run in runs.items()}
        first, taken = reports.get(AS_IS, []), runs[AS_IS].taken if runs else Taken()
        results = tuple(
            _result(one, count, name, ranks.ring_gb_s)
            for name, found in reports.items()
            for one in (found[0].measured if found else ())
        )
        seen = Observations()
        if ranks.scene is not None and runs:
            rows = measured(runs, results, len(ranks.gpus), options.nodes)
            seen = msgspec.structs.replace(surroundings(ranks.scene), measured=rows)
        ended = ends(runs.values())
        if alone:
            only = tuple(f"GPU {gpu.index} ({gpu.pci_bus_id})" for gpu in ranks.gpus)
            ended = (RanksEnd(kind="alone", detail="1 GPU, so nothing could be checked", evidence=only),)
        report = CollectivesReport(
            **clock.answer(facts, ()),
            backend=chosen.backend,
            kind=ranks.reason,
            ranks=count,
            nodes=options.nodes.count if options.nodes else 1,
            devices=tuple(f"{one.device} {one.device_name or ''}".strip() for one in first),
            versions=first[0].versions if first else {},
            results=results,
            transports=taken.transports,
            algorithms=taken.algorithms,
            notes=() if alone else _notes(chosen),
            observations=seen,
        )
        return Collected(report=report, ends=ended)

    return cut.report(lambda: evaluate(collected()), keep)


def _runs(options: RankOptions, count: int) -> dict[str, Ended]:
    """Return the run, and one without NVLS if NCCL chose it.

    Raises Unmeasurable if no process can be started, and the signal that came before there was a report.
    """
    try:
        first = launch(options, count)
        if first.signal is not None and not reports_of(first):
            raise first.signal
        runs, chosen = {AS_IS: first}, first.taken.chosen("AllReduce")
        nvls = any(algorithm.startswith("NVLS") for algorithm in chosen)
        if nvls and options.nodes is None and first.signal is None:
            only = msgspec.structs.replace(options, operations=("all_reduce",), sizes=options.sizes[-1:])
            runs["ring"] = launch(only, count, NCCL_NVLS_ENABLE="0")
    except OSError as error:
        raise Unmeasurable(RANKS.unknown("measure.ranks-not-started", f"no rank could be started: {error}")) from error
    return runs


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
    gpus = choose(reading.gpus, options.devices)
    admit(gpus, contended=options.contended)
    if options.ranks is not None and options.ranks > len(gpus):
        seen = f"--ranks {options.ranks}"
        raise Unmeasurable(RANKS.unknown("measure.more-ranks-than-gpus", seen, gpus=len(gpus)), usage=True)
    gpus = gpus[: options.ranks]
    scene = Scene(gpus=gpus, before=reading, facts=facts, topology=topology)
    ring_gb_s = _ring_gb_s(scene)
    small, large = SIZES["pcie" if ring_gb_s is None else "nvlink"]
    sizes = small, next((size for rate, size in LARGE if (ring_gb_s or 0.0) >= rate), large)
    reason = f"{counted(len(gpus), 'GPU')} on this host, NCCL"
    return _Ranks(gpus=gpus, count=len(gpus), reason=reason, sizes=sizes, scene=scene, ring_gb_s=ring_gb_s)


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
