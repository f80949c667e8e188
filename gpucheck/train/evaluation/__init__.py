"""Evaluate the outcome of a smoke test: one finding per assertion, with its number. Pure."""

from collections.abc import Iterable, Iterator
from itertools import chain

from msgspec.structs import replace

from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding
from gpucheck.model.smoke import SmokeFailure, SmokeResult
from gpucheck.printable import counted
from gpucheck.train.evaluation.root_cause import PLACEMENT, describe_ranks, distribution, evaluate_failure, subject_of
from gpucheck.train.evaluation.training import (
    NO_ALGORITHM,
    by_the_switch,
    evaluate_performance,
    evaluate_training,
    evaluate_transfer,
    not_by_the_switch,
)
from gpucheck.train.progress import CUDA_WHEELS
from gpucheck.train.spec import NVLS, not_across_gpus


def evaluate(outcome: SmokeResult | SmokeFailure, *, gpus: int | None = None) -> tuple[Finding, ...]:
    """Every finding of one smoke test, checks named for its strategy.

    gpus: how many real GPUs the host has, from another source than the framework; None is "not known, or simulated".
    A run that did not use two GPUs ends with one finding named ``smoke-placement``, which states that.
    """
    if isinstance(outcome, SmokeFailure):
        unavailable = outcome.variant == NVLS and any(NO_ALGORITHM in line for line in outcome.evidence)
        return (not_by_the_switch(outcome, NO_ALGORITHM) if unavailable else evaluate_failure(outcome, gpus),)
    made: Iterable[Finding] = chain(
        evaluate_training(outcome) if outcome.trained else evaluate_transfer(outcome), evaluate_performance(outcome)
    )
    if outcome.variant == NVLS:
        made = by_the_switch(outcome, made)
    return (*_with_scope(tuple(made), outcome, gpus), *_placement(outcome, gpus))


def _with_scope(made: tuple[Finding, ...], result: SmokeResult, gpus: int | None) -> tuple[Finding, ...]:
    """Return the findings; the first states how many GPUs took part if that is not all of this host."""
    used = len(set(result.devices))
    if result.placement != "gpus" or gpus is None or used >= gpus:
        return made
    first, *others = made
    return (replace(first, seen=f"{first.seen}, on {used} of {gpus} GPUs"), *others)


def _placement(result: SmokeResult, gpus: int | None) -> Iterator[Finding]:
    """Yield what this run cannot have proven, next to its passes."""
    if result.placement == "gpus":
        return
    if (
        result.placement != "mig"
        and gpus is not None
        and gpus >= (1 if result.placement == "cpu" else result.world_size)
    ):
        yield _not_on_gpus(result, gpus)
        return
    seen, wanted = f"{describe_ranks(result)}: {_proves(result)}", f"{result.world_size} GPUs"
    work = "training" if result.trained else "copies"
    subject = Subject(check=PLACEMENT, name=subject_of(result))
    yield subject.skips(not_across_gpus(result), seen, wanted, work=work, **_build(result))


def _build(result: SmokeResult) -> dict[str, str | int | None]:
    versions, framework = result.versions, result.framework
    return {
        "framework": framework,
        "version": versions.get(framework),
        "cuda": versions.get("cuda"),
        "ranks": result.world_size,
    }


def _proves(result: SmokeResult) -> str:
    if result.placement == "cpu":
        return "this tests the software stack, not GPU communication"
    if result.placement == "mig":
        return "this tests the MIG instances and the software stack, not communication between GPUs"
    return "this tests one GPU and the software stack, not communication between GPUs"


def _not_on_gpus(result: SmokeResult, gpus: int) -> Finding:
    framework, versions = result.framework, result.versions
    subject = Subject(
        check=PLACEMENT, evidence=(f"{framework} {versions.get(framework)}, CUDA {versions.get('cuda')}",)
    )
    ranks = describe_ranks(result)
    wanted = f"training on the {counted(gpus, 'GPU')} of this host"
    if versions.get("cuda") is not None and versions.get(CUDA_WHEELS, "") is not None:
        code = "training.gpus-not-found" if result.placement == "cpu" else "training.one-gpu-used"
        return subject.fails(code, f"{ranks}: {_proves(result)}", wanted, **_build(result))
    # The environment of gpucheck need not be the one that the jobs of this host use: no defect of the host.
    seen = f"training on GPUs unknown: {result.placement_reason}"
    if CUDA_WHEELS not in versions:
        return subject.unknown("training.build-without-cuda", seen, wanted, framework=framework, ranks=ranks)
    return subject.unknown(
        "training.cuda-packages-missing", seen, wanted, distribution=distribution(framework), ranks=ranks
    )
