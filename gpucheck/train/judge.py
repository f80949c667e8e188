"""What a smoke test's outcome means: pure, one finding an assertion, each with its number."""

from collections.abc import Iterator
from typing import Literal

from gpucheck.model import Finding, Verdict
from gpucheck.train.judge_failure import judge_failure
from gpucheck.train.outcome import SmokeFailure, SmokeResult

REPEAT = "gpucheck smoke"
ISOLATE = (
    "repeat with: gpucheck smoke --steps 200; then run your own job with NCCL_P2P_DISABLE=1: if that is right, GPU "
    "peer-to-peer is at fault: look at IOMMU, ACS and links with: gpucheck verify"
)
ON_CPU = "repeat with: gpucheck smoke --steps 200; the traffic is loopback TCP: suspect memory, CPU, or the torch build"


def judge(outcome: SmokeResult | SmokeFailure, *, gpus: int | None = None) -> tuple[Finding, ...]:
    """Every finding of one smoke test, checks named ``smoke-<strategy>``.

    gpus: how many real GPUs the host has, from another source than the framework; None is "not known, or simulated".
    A run on CPU ranks is always followed by a SKIP that says that no GPU took part.
    """
    if isinstance(outcome, SmokeFailure):
        return (judge_failure(outcome),)
    return (
        _loss(outcome),
        _accuracy(outcome),
        _data(outcome),
        _start(outcome),
        _gradients(outcome),
        _parameters(outcome),
        _optimizer(outcome),
        _reference(outcome),
        *_placement(outcome, gpus),
    )


def ranks_in_words(result: SmokeResult) -> str:
    """``2 CPU ranks, gloo`` or ``2 ranks on cuda:0, cuda:1, nccl``."""
    if result.placement == "cpu":
        return f"{result.world_size} CPU ranks, {result.backend}"
    if result.placement == "shared-gpu":
        return f"{result.world_size} ranks on one GPU, {result.backend}"
    return f"{result.world_size} ranks on {', '.join(result.devices)}, {result.backend}"


def _subject(result: SmokeResult) -> str:
    known = [bus_id for bus_id in dict.fromkeys(result.bus_ids) if bus_id is not None]
    if result.placement == "gpus" and len(known) == result.world_size == 2:
        return f"pair:{known[0]}-{known[1]}"
    return f"gpu:{known[0]}" if len(known) == 1 else "host"


def _finding(
    result: SmokeResult,
    seen: str,
    wanted: str,
    *,
    wrong: str = "",
    fix: str = "",
    cause: str | None = None,
    evidence: tuple[str, ...] = (),
) -> Finding:
    """PASS, or FAIL when ``wrong`` says what is wrong."""
    confidence: Literal["possible"] | None = "possible" if wrong and cause else None
    removed = tuple(f"kept from the ranks: {variable}" for variable in result.environment_removed)
    return Finding(
        check=f"smoke-{result.strategy}",
        verdict=Verdict.FAIL if wrong else Verdict.PASS,
        subject=_subject(result),
        seen=seen,
        wanted=wanted,
        cause=cause if wrong else None,
        confidence=confidence,
        why=wrong,
        fix=fix if wrong else "",
        evidence=(f"{ranks_in_words(result)}: {result.placement_reason}", *evidence, *removed),
    )


def _loss(result: SmokeResult) -> Finding:
    limit = result.limits.loss_fraction_max
    wanted = f"finite on every rank, at most {limit:.0%} of the first"
    if result.not_a_number or result.loss_first is None or result.loss_last is None:
        where = "; ".join(f"rank {stray.rank} from step {stray.step} on" for stray in result.not_a_number)
        return _finding(
            result,
            f"the loss is no number: {where}",
            wanted,
            wrong="a sum overflowed or a wrong value came in: rank and step say where it began",
            fix=ON_CPU if result.placement == "cpu" else ISOLATE,
            cause="data-corruption",
        )
    fraction = result.loss_last / result.loss_first
    fell = fraction <= limit
    return _finding(
        result,
        f"loss {result.loss_first:.4g} in step 1, {result.loss_last:.4g} in step {result.steps}: {fraction:.2g} of it",
        wanted,
        wrong="" if fell else "training runs and does not learn: updates do not reach the parameters or are wrong",
        fix="look at the findings on gradients and reference beside this one, then repeat with: " + REPEAT,
    )


def _accuracy(result: SmokeResult) -> Finding:
    limit, reached = result.limits.accuracy_min, result.accuracy
    good = reached is not None and reached >= limit
    return _finding(
        result,
        f"{'no' if reached is None else format(reached, '.1%')} accuracy on {result.held_out} held-out samples",
        f"{limit:.0%} or more",
        wrong="" if good else "the model has not learned what it was shown (guessing reaches 10%)",
        fix="look at the findings on loss and reference beside this one, then repeat with: " + REPEAT,
    )


def _data(result: SmokeResult) -> Finding:
    wrong = ", ".join(map(str, result.wrong_data_ranks))
    return _finding(
        result,
        f"rank {wrong} was fed other samples than planned" if wrong else "each rank was fed its share of each batch",
        "every sample to exactly one rank, in the planned order",
        wrong="ranks that draw samples in another order overlap: training converges and still is not what was asked for"
        if wrong
        else "",
        fix="check that all ranks run the same numpy and the same gpucheck, then repeat with: " + REPEAT,
    )


def _start(result: SmokeResult) -> Finding:
    equal = len(set(result.checkpoints[0].parameters)) == 1
    return _finding(
        result,
        "parameters bit-equal after the first broadcast" if equal else _hashes(result.checkpoints[0].parameters),
        "the parameters of rank 0 on every rank",
        wrong="" if equal else "the broadcast from rank 0 delivered other data than was sent",
        fix=ON_CPU if result.placement == "cpu" else ISOLATE,
        cause="data-corruption",
    )


def _gradients(result: SmokeResult) -> Finding:
    step = result.gradients_differ_from_step
    wanted = "bit-equal on all ranks after every all-reduce"
    if step is None:
        return _finding(result, f"averaged gradients bit-equal in all {result.steps} steps", wanted)
    chain = next((c for c in result.checkpoints if c.step >= step), result.checkpoints[-1])
    return _finding(
        result,
        f"averaged gradients differ between ranks, first in step {step}",
        wanted,
        wrong="an all-reduce left different results on its ranks: data was damaged on the way or after it arrived",
        fix=ON_CPU if result.placement == "cpu" else ISOLATE,
        cause="data-corruption",
        evidence=(f"up to step {chain.step}: {_hashes(chain.gradients or ())}",),
    )


def _parameters(result: SmokeResult) -> Finding:
    compared = f"compared {len(result.checkpoints)} times"
    wanted = "bit-equal on all ranks at every comparison"
    for checkpoint in result.checkpoints[1:]:
        if len(set(checkpoint.parameters)) > 1:
            return _finding(
                result,
                f"parameters differ between ranks, first seen after step {checkpoint.step}",
                wanted,
                wrong="the ranks train different models from here on: a checkpoint of any one rank is not the job's",
                fix=ON_CPU if result.placement == "cpu" else ISOLATE,
                cause="data-corruption",
                evidence=(f"after step {checkpoint.step}: {_hashes(checkpoint.parameters)}",),
            )
    final = result.checkpoints[-1]
    return _finding(
        result,
        f"parameters bit-equal on {result.world_size} ranks, {compared}",
        wanted,
        evidence=(f"after step {final.step}: sha256 {final.parameters[0]}",),
    )


def _optimizer(result: SmokeResult) -> Finding:
    wanted = "bit-equal on all ranks at every comparison"
    for checkpoint in result.checkpoints:
        if len(set(checkpoint.optimizer or ())) > 1:
            return _finding(
                result,
                f"optimizer state differs between ranks, first seen after step {checkpoint.step}",
                wanted,
                wrong="the ranks have applied different updates; momentum carries the difference on",
                fix=ON_CPU if result.placement == "cpu" else ISOLATE,
                cause="data-corruption",
                evidence=(f"after step {checkpoint.step}: {_hashes(checkpoint.optimizer or ())}",),
            )
    return _finding(result, f"optimizer state bit-equal on {result.world_size} ranks", wanted)


def _reference(result: SmokeResult) -> Finding:
    limit, apart = result.limits.parameter_tolerance, result.parameter_max_abs_difference
    good = apart is not None and apart <= limit
    relative = result.parameter_max_relative_difference
    return _finding(
        result,
        f"parameters within {apart:.3g} of one process with the whole batch" if apart is not None else "not a number",
        f"{limit:.3g} or less",
        wrong=""
        if good
        else "the distributed run computed something else than the same training in one process: a contribution was "
        "lost, repeated or wrong, or a rank trained on other samples",
        fix=ON_CPU if result.placement == "cpu" else ISOLATE,
        cause=None if result.wrong_data_ranks else "data-corruption",
        evidence=(f"{relative:.3g} of the distance travelled in training",) if relative is not None else (),
    )


def _placement(result: SmokeResult, gpus: int | None) -> Iterator[Finding]:
    """What this run cannot have proven, said where a reader of passes will see it."""
    if result.placement == "gpus":
        return
    if gpus is not None and gpus >= (1 if result.placement == "cpu" else result.world_size):
        yield _not_on_gpus(result, gpus)
        return
    yield Finding(
        check=f"smoke-{result.strategy}",
        verdict=Verdict.SKIP,
        subject=_subject(result),
        seen=f"{ranks_in_words(result)}: {_proves(result)}",
        wanted=f"{result.world_size} GPUs",
        why=f"training across GPUs was not tried: {result.placement_reason}",
    )


def _proves(result: SmokeResult) -> str:
    if result.placement == "cpu":
        return "this proves the software stack, not GPU communication"
    return "this proves one GPU and the software stack, not communication between GPUs"


def _not_on_gpus(result: SmokeResult, gpus: int) -> Finding:
    without = result.versions.get("cuda") is None
    return Finding(
        check=f"smoke-{result.strategy}",
        verdict=Verdict.WARN if without else Verdict.FAIL,
        subject="host",
        seen=f"{ranks_in_words(result)}: {_proves(result)}",
        wanted=f"training on the {gpus} GPU{'s' if gpus > 1 else ''} of this host",
        cause="library-mismatch" if without else None,
        confidence="certain" if without else None,
        why=f"this host has GPUs and torch does not use them: {result.placement_reason}",
        fix="install a torch build with CUDA beside gpucheck: gpucheck stack resolve names it"
        if without
        else "check the driver with: gpucheck verify --level quick; check CUDA_VISIBLE_DEVICES and, in a container, "
        "--gpus",
        evidence=(f"torch {result.versions.get('torch')}, CUDA {result.versions.get('cuda')}",),
    )


def _hashes(values: tuple[str, ...]) -> str:
    return ", ".join(f"rank {rank} {value[:12]}" for rank, value in enumerate(values))
