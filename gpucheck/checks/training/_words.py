"""How findings and facts of a training are worded, and what its findings have in common."""

from collections.abc import Iterator

import msgspec

from gpucheck.knowledge.codes import Subject, known
from gpucheck.model import Finding, Verdict
from gpucheck.model.smoke import Performance, SmokeResult, check_of
from gpucheck.printable import counted

# The finding about a run that did not use two GPUs: a name of its own, for the run's own findings may all pass.
PLACEMENT = "smoke-placement"
# What pip installs for a package that is imported by another name, or that needs CUDA libraries with it.
DISTRIBUTIONS = {"cupy": "cupy-cuda12x[ctk]", "tensorflow": "tensorflow[and-cuda]"}
# Of a code of wrong data between CPU ranks: GPUs and links are not suspected.
ON_CPU = "-on-cpu"


def distribution(package: str) -> str:
    """Return what pip installs for a package that is missing."""
    return DISTRIBUTIONS.get(package, package)


def describe_ranks(result: SmokeResult) -> str:
    """``2 CPU ranks, gloo`` or ``2 ranks on cuda:0, cuda:1, nccl``; devices where one process drives all of them."""
    word = "rank" if len(result.rank_seconds) > 1 or result.world_size == 1 else "device"
    if result.placement == "cpu":
        return f"{counted(result.world_size, f'CPU {word}')}, {result.backend}"
    where = {"shared-gpu": "one GPU", "mig": "MIG instances"}.get(result.placement, ", ".join(result.devices))
    return f"{counted(result.world_size, word)} on {where}, {result.backend}"


def subject_of(result: SmokeResult) -> str:
    """The pair, the one GPU, or the host."""
    known = [bus_id for bus_id in dict.fromkeys(result.bus_ids) if bus_id is not None]
    if result.placement == "gpus" and len(known) == result.world_size == 2:
        return f"pair:{known[0]}-{known[1]}"
    return f"gpu:{known[0]}" if len(known) == 1 else "host"


def finding(
    result: SmokeResult,
    seen: str,
    wanted: str,
    code: str | None = None,
    *,
    verdict: Verdict = Verdict.FAIL,
    evidence: tuple[str, ...] = (),
    subject: str | None = None,
    explained: bool = False,
) -> Finding:
    """Return PASS without a code, else ``verdict``. explained: by another finding, so that no cause is suspected."""
    removed = tuple(f"kept from the ranks: {variable}" for variable in result.environment_removed)
    made = Subject(
        check=check_of(result),
        name=subject or subject_of(result),
        evidence=(*describe_placement(result), *evidence, *removed),
    )
    seen = f"{result.variant}: {seen}" if result.variant else seen
    if code is None:
        return made.passes(seen, wanted)
    code += ON_CPU if result.placement == "cpu" and known(code + ON_CPU) else ""
    return made.finding(verdict, code, seen, wanted, cause=None if explained else msgspec.UNSET)


def describe_placement(result: SmokeResult) -> Iterator[str]:
    yield f"{describe_ranks(result)}: {result.placement_reason}"
    if result.transports or result.algorithms:
        kinds = ", ".join(result.transports) or "transport not named"
        ways = "; ".join(f"{name or 'all collectives'} by {' and '.join(a)}" for name, a in result.algorithms.items())
        yield f"NCCL's log: {kinds}{f'; {ways}' if ways else ''}"


def describe_facts(result: SmokeResult) -> Iterator[str]:
    """What ran where, with what, and how fast: one fact a line."""
    yield from describe_placement(result)
    versions = [f"{name} {version}" for name, version in result.versions.items() if version]
    yield ", ".join([*filter(None, dict.fromkeys(result.device_names)), *versions])
    if result.trained:
        work = f"{result.model} in {result.precision}, {result.steps} steps of {result.batch_per_rank} samples a device"
        yield f"{work}, {result.data_source} data"
    if result.performance is not None:
        yield from describe_performance(result.performance)
    phases = (f"{phase} {seconds:.2f}" for phase, seconds in result.seconds.items() if seconds >= 0.005)
    yield f"seconds: {', '.join(phases)}"


def describe_performance(measured: Performance) -> Iterator[str]:
    """The figures, one fact a line."""
    names = (
        [f"rank {rank} " for rank in range(len(measured.samples_per_s))] if len(measured.samples_per_s) > 1 else [""]
    )
    rates = ", ".join(f"{name}{rate:.0f}" for name, rate in zip(names, measured.samples_per_s, strict=True))
    alone = f"; one device alone {measured.single_samples_per_s:.0f}" if measured.single_samples_per_s else ""
    efficiency = f"; scaling efficiency {measured.scaling_efficiency:.0%}" if measured.scaling_efficiency else ""
    yield f"samples/s: {rates}{alone}{efficiency}"
    if measured.shares:
        yield "step time: " + ", ".join(f"{name} {part:.0%}" for name, part in measured.shares.items())
    if measured.communication:
        yield f"communication: {measured.communication}"


def hashes(values: tuple[str, ...]) -> str:
    """``rank 0 1f3a..., rank 1 1f3b...``."""
    return ", ".join(f"rank {rank} {value[:12]}" for rank, value in enumerate(values))
