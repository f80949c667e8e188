"""Training: does a short run on the devices of this host train, with the result that it must have?

Source: a real run with the framework, every rank in a process of its own with deadlines from outside.
One finding for each assertion, with its number: FAIL for wrong data, and for a run that did not end as it should; WARN
for a slow rank and for memory that is kept; UNKNOWN if the time or the host's resources were too short; SKIP without
the package. A run that did not use two GPUs ends with a finding named smoke-placement, which states that.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from msgspec.structs import replace

from gpucheck.checks.training._failed import evaluate_failure
from gpucheck.checks.training._words import (
    PLACEMENT,
    describe_performance,
    describe_placement,
    describe_ranks,
    distribution,
    finding,
    hashes,
    subject_of,
)
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding, Verdict
from gpucheck.model.facts import Facts
from gpucheck.model.smoke import (
    CUDA_WHEELS,
    NVLS,
    Copy,
    Performance,
    Reference,
    SmokeFailure,
    SmokeResult,
    Trained,
    check_of,
)
from gpucheck.printable import counted


def trainings(facts: Facts) -> Iterator[Finding]:
    """Yield the findings of every run, in order; their checks are named for the strategies."""
    for run in facts.trained:
        yield from _of_run(run)


def _of_run(run: Trained) -> tuple[Finding, ...]:
    outcome, gpus = run.outcome, run.gpus
    if isinstance(outcome, SmokeFailure):
        unavailable = outcome.variant == NVLS and any(NO_ALGORITHM in line for line in outcome.evidence)
        return (not_by_the_switch(outcome, NO_ALGORITHM) if unavailable else evaluate_failure(run, outcome),)
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


# Where it ran -> what a run there tests, and the code for it.
PROVES = {
    "cpu": ("the software stack, not GPU communication", "training.across-no-gpu"),
    "mig": ("the MIG instances and the software stack, not communication between GPUs", "training.across-instances"),
    "shared-gpu": ("one GPU and the software stack, not communication between GPUs", "training.across-one-gpu"),
}


def _placement(result: SmokeResult, gpus: int | None) -> Iterator[Finding]:
    if result.placement == "gpus":
        return
    framework, versions, ranks = result.framework, result.versions, describe_ranks(result)
    cuda, on_cpu = versions.get("cuda"), result.placement == "cpu"
    build = {"framework": framework, "version": versions.get(framework), "cuda": cuda, "ranks": result.world_size}
    tests, code = PROVES[result.placement]
    seen = f"{ranks}: this tests {tests}"
    if gpus is None or result.placement == "mig" or gpus < (1 if on_cpu else result.world_size):
        code = "training.across-no-cuda" if on_cpu and cuda is None else code
        work = "training" if result.trained else "copies"
        subject = Subject(check=PLACEMENT, name=subject_of(result))
        yield subject.skips(code, seen, f"{result.world_size} GPUs", work=work, **build)
        return
    subject = Subject(check=PLACEMENT, evidence=(f"{framework} {versions.get(framework)}, CUDA {cuda}",))
    wanted = f"training on the {counted(gpus, 'GPU')} of this host"
    if cuda is not None and versions.get(CUDA_WHEELS, "") is not None:
        yield subject.fails("training.gpus-not-found" if on_cpu else "training.one-gpu-used", seen, wanted, **build)
        return
    # The environment of gpucheck need not be the one that the jobs of this host use: no defect of the host.
    seen = f"training on GPUs unknown: {result.placement_reason}"
    if CUDA_WHEELS not in versions:
        yield subject.unknown("training.build-without-cuda", seen, wanted, framework=framework, ranks=ranks)
    else:
        package = distribution(framework)
        yield subject.unknown("training.cuda-packages-missing", seen, wanted, distribution=package, ranks=ranks)


def evaluate_performance(result: SmokeResult) -> Iterator[Finding]:
    """Yield findings on a slow rank and on memory that a second training does not release."""
    if result.performance is not None and result.performance.straggler_ratio is not None:
        yield _pace(result, result.performance)
    if result.memory_kept_bytes:
        yield _memory(result)


def _pace(result: SmokeResult, measured: Performance) -> Finding:
    ratio, limit, rank = measured.straggler_ratio or 0.0, result.limits.straggler_ratio_max, measured.slowest_rank or 0
    wanted, evidence = f"{limit:.3g} times or less", tuple(describe_performance(measured))
    if ratio <= limit:
        seen = f"ranks compute equally fast: the slowest takes {ratio:.2f} times as long as the fastest"
        return finding(result, seen, wanted, evidence=evidence)
    bus_id = result.bus_ids[rank] if rank < len(result.bus_ids) else None
    seen = f"rank {rank} on {result.devices[rank]} computes {ratio:.2f} times as long as the fastest"
    subject, code = f"gpu:{bus_id}" if bus_id else None, "training.rank-slow"
    return finding(result, seen, wanted, code, verdict=Verdict.WARN, subject=subject, evidence=evidence)


def _memory(result: SmokeResult) -> Finding:
    kept, limit = max(result.memory_kept_bytes), result.limits.memory_kept_max_bytes
    wanted = f"{limit >> 20} MiB or less"
    if kept <= limit:
        seen = f"memory returned: a second training left {max(kept, 0) / 2**20:.1f} MiB more than the first"
        return finding(result, seen, wanted)
    rank = result.memory_kept_bytes.index(kept)
    seen = f"rank {rank} keeps {kept / 2**20:.1f} MiB more after a second training"
    return finding(result, seen, wanted, "training.memory-kept", verdict=Verdict.WARN)


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
    evidence = tuple(
        f"{source} to {target}: {copy.bytes} bytes {f'{copy.wrong} wrong' if copy.wrong else 'right'}"
        + (f", {copy.gb_s:.3g} GB/s" if copy.gb_s is not None else "")
        for copy in copies
    )
    if wrong is not None:
        seen = f"{source} to {target}: {wrong.wrong} of {wrong.bytes} bytes wrong, the first at {wrong.first_wrong}"
        return finding(result, seen, "every byte as sent", DAMAGE[wrong.damage], evidence=evidence)
    whole = sum(copy.bytes for copy in copies)
    best = max((copy.gb_s for copy in copies if copy.gb_s is not None), default=None)
    rate = f", up to {best:.3g} GB/s" if best is not None else ""
    path = {"peer access": ", by peer access", "host memory": ", through host memory", None: ""}[copies[0].path]
    seen = f"{source} to {target}: {len(copies)} copies of {whole / 2**20:.3g} MiB together right{path}{rate}"
    wanted = f"every byte as sent, checked by {' and '.join(copies[0].checked_by)}"
    return finding(result, seen, wanted, evidence=evidence)


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
    limit, precision = result.limits.loss_fraction_max, result.precision
    wanted = f"finite on every rank, at most {limit:.0%} of the first"
    if result.not_a_number or result.loss_first is None or result.loss_last is None:
        where = "; ".join(f"rank {stray.rank} from step {stray.step} on" for stray in result.not_a_number)
        code = "training.loss-overflowed" if precision in ("fp16", "bf16") else "training.loss-not-a-number"
        return finding(result, f"the loss is not a number: {where}", wanted, code)
    fraction = result.loss_last / result.loss_first
    seen = (
        f"loss {result.loss_first:.4g} in step 1, {result.loss_last:.4g} in step {result.steps}: {fraction:.2g} of it"
    )
    seen += f", no NaN in {precision}" if precision != "fp32" else ""
    return finding(result, seen, wanted, None if fraction <= limit else "training.loss-too-high")


def _accuracy(result: SmokeResult) -> Finding:
    limit, reached = result.limits.accuracy_min, result.accuracy
    seen = f"{'no' if reached is None else format(reached, '.1%')} accuracy on {result.held_out} held-out samples"
    good = reached is not None and reached >= limit
    return finding(result, seen, f"{limit:.0%} or more", None if good else "training.accuracy-too-low")


def _data(result: SmokeResult) -> Finding:
    wrong, wanted = (
        ", ".join(map(str, result.wrong_data_ranks)),
        "every sample to exactly one rank, in the planned order",
    )
    if not wrong:
        return finding(result, "each rank was fed its share of each batch", wanted)
    return finding(result, f"rank {wrong} was fed other samples than planned", wanted, "training.data-order-differs")


def _start(result: SmokeResult) -> Finding:
    parameters, wanted = result.checkpoints[0].parameters, "the parameters of rank 0 on every rank"
    if len(set(parameters)) == 1:
        return finding(result, "parameters bit-equal after the first broadcast", wanted)
    return finding(result, hashes(parameters), wanted, "training.start-differs")


def _gradients(result: SmokeResult) -> Finding:
    step, wanted = result.gradients_differ_from_step, "bit-equal on all ranks after every all-reduce"
    if step is None:
        return finding(result, f"averaged gradients bit-equal in all {result.steps} steps", wanted)
    chain = next((c for c in result.checkpoints if c.step >= step), result.checkpoints[-1])
    evidence = (f"up to step {chain.step}: {hashes(chain.gradients or ())}",)
    seen = f"averaged gradients differ between ranks, first in step {step}"
    return finding(result, seen, wanted, "training.gradients-differ", evidence=evidence)


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
    wanted, wrong = "the average of what all ranks sent, after every all-reduce", result.miscommunication
    if wrong is None:
        seen = f"all-reduce was the average of what was sent in all {result.summed_steps} steps"
        return finding(result, seen, wanted)
    off = f"off by {wrong.error:.2g} of the gradients' norm" if wrong.error is not None else "not a number"
    seen, code = {
        "dropped": (f"the contribution of rank {wrong.rank} is missing from the average", "training.contribution-lost"),
        "stale": (f"rank {wrong.rank} contributed the gradients of the step before", "training.buffer-stale"),
        "wrong": (f"the average on rank {wrong.rank} does not match what was sent", "training.average-wrong"),
    }[wrong.kind]
    return finding(result, f"step {wrong.step}: {seen}, {off}", wanted, code)


def _reference(result: SmokeResult, reference: Reference) -> Finding:
    limit, apart = result.limits.parameter_tolerance, reference.max_abs_difference
    relative = reference.max_relative_difference
    return finding(
        result,
        f"parameters within {apart:.3g} of {reference.name}" if apart is not None else "not a number",
        f"{limit:.3g} or less",
        None if apart is not None and apart <= limit else "training.reference-differs",
        # Another finding of the run explains it already, and the links are not suspected.
        explained=bool(result.wrong_data_ranks) or result.miscommunication is not None,
        evidence=(f"{relative:.3g} of the distance travelled in training",) if relative is not None else (),
    )


def _repeat(result: SmokeResult) -> Finding:
    other = {rank: repeat for rank, repeat in enumerate(result.repeats) if repeat.first != repeat.second}
    step, wanted = result.repeats[0].step, "the same parameters, bit for bit"
    if not other:
        return finding(result, f"trained again from the same seed: bit-equal after {step} steps", wanted)
    which = ", ".join(map(str, other))
    seen = f"trained again from the same seed: rank {which} reached other parameters after {step} steps"
    evidence = tuple(f"rank {rank}: {one.first[:12]}, then {one.second[:12]}" for rank, one in other.items())
    return finding(result, seen, wanted, "training.repeat-differs", evidence=evidence)


def _check(name: str) -> Check:
    def evaluate(facts: Facts) -> Iterable[Finding]:
        return (each for each in trainings(facts) if each.check == name)

    return Check(name, frozenset({"measure", "training"}), evaluate, ("trained",))


# By the strategies of gpucheck/train/strategies.
RUNS = ("smoke-ddp", "smoke-dp", "smoke-fsdp", "smoke-model-parallel", "smoke-tensorflow-mirrored")
COPIES = ("smoke-transfer", "smoke-cupy-transfer")
CHECKS = tuple(map(_check, (*RUNS, *COPIES, PLACEMENT)))
