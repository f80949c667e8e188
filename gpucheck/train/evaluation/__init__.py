"""Evaluate the outcome of a smoke test: one finding per assertion, with its number. Pure."""

from collections.abc import Iterable, Iterator
from itertools import chain

from msgspec.structs import replace

from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Verdict
from gpucheck.model.smoke import Copy, Performance, Reference, SmokeFailure, SmokeResult
from gpucheck.printable import counted
from gpucheck.train.evaluation.root_cause import (
    PLACEMENT,
    check_of,
    describe_performance,
    describe_placement,
    describe_ranks,
    distribution,
    evaluate_failure,
    finding,
    hashes,
    subject_of,
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
    used = len(set(result.devices))
    if result.placement != "gpus" or gpus is None or used >= gpus:
        return made
    first, *others = made
    return (replace(first, seen=f"{first.seen}, on {used} of {gpus} GPUs"), *others)


def _placement(result: SmokeResult, gpus: int | None) -> Iterator[Finding]:
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


def evaluate_performance(result: SmokeResult) -> Iterator[Finding]:
    """Yield findings on a slow rank and on memory that a second training does not release."""
    if result.performance is not None and result.performance.straggler_ratio is not None:
        yield _pace(result, result.performance)
    if result.memory_kept_bytes:
        yield _memory(result)


def _pace(result: SmokeResult, measured: Performance) -> Finding:
    ratio, limit = measured.straggler_ratio or 0.0, result.limits.straggler_ratio_max
    slow = ratio > limit
    rank = measured.slowest_rank or 0
    bus_id = result.bus_ids[rank] if rank < len(result.bus_ids) else None
    return finding(
        result,
        f"rank {rank} on {result.devices[rank]} computes {ratio:.2f} times as long as the fastest"
        if slow
        else f"ranks compute equally fast: the slowest takes {ratio:.2f} times as long as the fastest",
        f"{limit:.3g} times or less",
        "training.rank-slow" if slow else None,
        verdict=Verdict.WARN,
        subject=f"gpu:{bus_id}" if slow and bus_id else None,
        evidence=tuple(describe_performance(measured)),
    )


def _memory(result: SmokeResult) -> Finding:
    kept, limit = max(result.memory_kept_bytes), result.limits.memory_kept_max_bytes
    much = kept > limit
    rank = result.memory_kept_bytes.index(kept)
    return finding(
        result,
        f"memory returned: a second training left {max(kept, 0) / 2**20:.1f} MiB more than the first"
        if not much
        else f"rank {rank} keeps {kept / 2**20:.1f} MiB more after a second training",
        f"{limit >> 20} MiB or less",
        "training.memory-kept" if much else None,
        verdict=Verdict.WARN,
    )


# Zeros are what translated addresses look like (IOMMU); untouched: the copy was reported done.
DAMAGE = {
    "untouched": "training.nothing-arrived",
    "zeros": "training.zeros-arrived",
    "other": "training.other-data-arrived",
}


def evaluate_transfer(result: SmokeResult) -> Iterator[Finding]:
    """Yield one finding per direction; a wrong byte in any of its copies fails it."""
    for source, target in dict.fromkeys((copy.source, copy.target) for copy in result.copies):
        copies = [copy for copy in result.copies if (copy.source, copy.target) == (source, target)]
        yield _direction(result, source, target, copies)


def _direction(result: SmokeResult, source: str, target: str, copies: list[Copy]) -> Finding:
    wrong = next((copy for copy in copies if copy.wrong), None)
    evidence = tuple(_describe(copy) for copy in copies)
    if wrong is None:
        whole = sum(copy.bytes for copy in copies)
        best = max((copy.gb_s for copy in copies if copy.gb_s is not None), default=None)
        rate = f", up to {best:.3g} GB/s" if best is not None else ""
        who = " and ".join(copies[0].checked_by)
        path = {"peer access": ", by peer access", "host memory": ", through host memory", None: ""}[copies[0].path]
        seen = f"{source} to {target}: {len(copies)} copies of {whole / 2**20:.3g} MiB together right{path}{rate}"
        return finding(result, seen, f"every byte as sent, checked by {who}", evidence=evidence)
    return finding(
        result,
        f"{source} to {target}: {wrong.wrong} of {wrong.bytes} bytes wrong, the first at {wrong.first_wrong}",
        "every byte as sent",
        DAMAGE.get(wrong.damage, DAMAGE["other"]),
        evidence=evidence,
    )


def _describe(copy: Copy) -> str:
    rate = f", {copy.gb_s:.3g} GB/s" if copy.gb_s is not None else ""
    state = f"{copy.wrong} wrong" if copy.wrong else "right"
    return f"{copy.source} to {copy.target}: {copy.bytes} bytes {state}{rate}"


# NCCL's error where NCCL_ALGO allows only what these GPUs or their switch do not have (src/enqueue.cc).
NO_ALGORITHM = "no algorithm/protocol available"
EQUAL = "bit-equal on all ranks at every comparison"


def evaluate_training(result: SmokeResult) -> Iterator[Finding]:
    yield _loss(result)
    yield _accuracy(result)
    ranks = len(result.checkpoints[0].parameters)
    if any(reference.data_hashes for reference in result.references):
        yield _data(result)
    if ranks > 1:
        yield _start(result)
        if result.gradients_hashed:
            yield _gradients(result)
        elif any(checkpoint.gradients for checkpoint in result.checkpoints):
            yield _equal(result, "gradients")
    if result.summed_steps:
        yield _communication(result)
    if ranks > 1:
        yield _equal(result, "parameters")
        yield _equal(result, "optimizer")
    for reference in result.references:
        yield _reference(result, reference)
    # Sums made by the switch agree between ranks and with the reference, and not bit for bit between runs.
    if result.repeats and result.variant != NVLS:
        yield _repeat(result)


def by_the_switch(result: SmokeResult, made: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings of the variant NVLS: without a line of NCCL that names it, what failed and a SKIP."""
    chosen = result.algorithms.get("AllReduce") or result.algorithms.get("", ())
    nccl = f"NCCL {result.versions.get('nccl')}"
    if any(algorithm.startswith("NVLS") for algorithm in chosen):
        yield finding(result, f"{nccl} summed by {' and '.join(chosen)}, from its log", "sums by the NVSwitch")
        yield from made
        return
    yield from (each for each in made if each.verdict is not Verdict.PASS)
    seen = f"{nccl} chose {' and '.join(chosen)}" if chosen else f"the log of {nccl} names no algorithm"
    yield replace(not_by_the_switch(result, seen), evidence=tuple(describe_placement(result)))


def not_by_the_switch(outcome: SmokeResult | SmokeFailure, seen: str) -> Finding:
    subject = Subject(check=check_of(outcome), evidence=getattr(outcome, "evidence", ()))
    return subject.skips("training.nvls-not-used", f"{NVLS}: {seen}", "sums by the NVSwitch")


def _loss(result: SmokeResult) -> Finding:
    limit = result.limits.loss_fraction_max
    wanted = f"finite on every rank, at most {limit:.0%} of the first"
    if result.not_a_number or result.loss_first is None or result.loss_last is None:
        where = "; ".join(f"rank {stray.rank} from step {stray.step} on" for stray in result.not_a_number)
        low = result.precision in ("fp16", "bf16")
        return finding(
            result,
            f"the loss is not a number: {where}",
            wanted,
            "training.loss-overflowed" if low else "training.loss-not-a-number",
        )
    fraction = result.loss_last / result.loss_first
    fell = fraction <= limit
    return finding(
        result,
        f"loss {result.loss_first:.4g} in step 1, {result.loss_last:.4g} in step {result.steps}: {fraction:.2g} of it"
        + (f", no NaN in {result.precision}" if result.precision != "fp32" else ""),
        wanted,
        None if fell else "training.loss-too-high",
    )


def _accuracy(result: SmokeResult) -> Finding:
    limit, reached = result.limits.accuracy_min, result.accuracy
    good = reached is not None and reached >= limit
    return finding(
        result,
        f"{'no' if reached is None else format(reached, '.1%')} accuracy on {result.held_out} held-out samples",
        f"{limit:.0%} or more",
        None if good else "training.accuracy-too-low",
    )


def _data(result: SmokeResult) -> Finding:
    wrong = ", ".join(map(str, result.wrong_data_ranks))
    return finding(
        result,
        f"rank {wrong} was fed other samples than planned" if wrong else "each rank was fed its share of each batch",
        "every sample to exactly one rank, in the planned order",
        "training.data-order-differs" if wrong else None,
    )


def _start(result: SmokeResult) -> Finding:
    equal = len(set(result.checkpoints[0].parameters)) == 1
    return finding(
        result,
        "parameters bit-equal after the first broadcast" if equal else hashes(result.checkpoints[0].parameters),
        "the parameters of rank 0 on every rank",
        None if equal else "training.start-differs",
    )


def _gradients(result: SmokeResult) -> Finding:
    step = result.gradients_differ_from_step
    wanted = "bit-equal on all ranks after every all-reduce"
    if step is None:
        return finding(result, f"averaged gradients bit-equal in all {result.steps} steps", wanted)
    chain = next((c for c in result.checkpoints if c.step >= step), result.checkpoints[-1])
    return finding(
        result,
        f"averaged gradients differ between ranks, first in step {step}",
        wanted,
        "training.gradients-differ",
        evidence=(f"up to step {chain.step}: {hashes(chain.gradients or ())}",),
    )


# What of a checkpoint is compared -> the words where ranks differ, and the code.
DIFFERS = {
    "gradients": ("gathered gradients differ between ranks, first in step", "training.gathered-gradients-differ"),
    "parameters": ("parameters differ between ranks, first after step", "training.parameters-differ"),
    "optimizer": ("optimizer state differs between ranks, first after step", "training.optimizer-differs"),
}


def _equal(result: SmokeResult, what: str) -> Finding:
    """PASS where every rank holds the same at every comparison; else the first step at which they do not."""
    (seen, code), made = DIFFERS[what], result.checkpoints
    for checkpoint in made[1:]:  # the start has a finding of its own
        hashed = getattr(checkpoint, what) or ()
        if len(set(hashed)) > 1:
            step = checkpoint.step
            return finding(result, f"{seen} {step}", EQUAL, code, evidence=(f"step {step}: {hashes(hashed)}",))
    ranks, final = len(made[0].parameters), made[-1]
    good = {
        "gradients": f"gathered gradients bit-equal, compared {len(made) - 1} times",
        "parameters": f"parameters bit-equal on {ranks} ranks, compared {len(made)} times",
        "optimizer": f"optimizer state bit-equal on {ranks} ranks",
    }[what]
    evidence = (f"after step {final.step}: sha256 {final.parameters[0]}",) if what == "parameters" else ()
    return finding(result, good, EQUAL, evidence=evidence)


def _communication(result: SmokeResult) -> Finding:
    wanted = "the average of what all ranks sent, after every all-reduce"
    wrong = result.miscommunication
    if wrong is None:
        return finding(
            result, f"all-reduce was the average of what was sent in all {result.summed_steps} steps", wanted
        )
    off = f"off by {wrong.error:.2g} of the gradients' norm" if wrong.error is not None else "not a number"
    seen, code = {
        "dropped": (f"the contribution of rank {wrong.rank} is missing from the average", "training.contribution-lost"),
        "stale": (f"rank {wrong.rank} contributed the gradients of the step before", "training.buffer-stale"),
        "wrong": (f"the average on rank {wrong.rank} does not match what was sent", "training.average-wrong"),
    }[wrong.kind]
    return finding(result, f"step {wrong.step}: {seen}, {off}", wanted, code)


def _reference(result: SmokeResult, reference: Reference) -> Finding:
    limit, apart = result.limits.parameter_tolerance, reference.max_abs_difference
    good = apart is not None and apart <= limit
    relative = reference.max_relative_difference
    # Another finding of the run explains it already, and the links are not suspected.
    explained = bool(result.wrong_data_ranks) or result.miscommunication is not None
    return finding(
        result,
        f"parameters within {apart:.3g} of {reference.name}" if apart is not None else "not a number",
        f"{limit:.3g} or less",
        None if good else "training.reference-differs",
        explained=explained,
        evidence=(f"{relative:.3g} of the distance travelled in training",) if relative is not None else (),
    )


def _repeat(result: SmokeResult) -> Finding:
    other = [rank for rank, repeat in enumerate(result.repeats) if repeat.first != repeat.second]
    step = result.repeats[0].step
    wanted = "the same parameters, bit for bit"
    if not other:
        return finding(result, f"trained again from the same seed: bit-equal after {step} steps", wanted)
    which = ", ".join(map(str, other))
    return finding(
        result,
        f"trained again from the same seed: rank {which} reached other parameters after {step} steps",
        wanted,
        "training.repeat-differs",
        evidence=tuple(
            f"rank {r}: {result.repeats[r].first[:12]}, then {result.repeats[r].second[:12]}" for r in other
        ),
    )
