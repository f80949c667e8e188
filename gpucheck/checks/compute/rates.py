"""Rates of matrices and memory: against the ceiling of the GPU, and against GPUs of the same model.

A rate of matrices is compared per clock, because healthy GPUs run at different clocks within one power limit; the clock
itself is evaluated by compute-clocks. Numbers alone never make a finding certain.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from gpucheck.checks.compute._devices import compute_check, gpus, losses, models, spread_of_others, subject_of
from gpucheck.knowledge.codes import Subject, code_of
from gpucheck.knowledge.compute import compute_table, operations_per_clock
from gpucheck.model import Finding
from gpucheck.model.compute import TYPES, WAYS, ComputeDevice, Low, Rate
from gpucheck.model.facts import Facts
from gpucheck.model.finding import Confidence

SIGMAS = 4.0  # standard deviations: once in 16,000 comparisons of healthy GPUs
MATRIX, MEMORY = "compute-matrix", "compute-memory"
# Against its peers and against its own ceiling: where the rates of the model are known, where they are not, unlicensed.
SLOW = {
    MATRIX: ("compute.matrix-slow", "compute.matrix-slow-unlisted", "compute.slow-unlicensed"),
    MEMORY: ("compute.memory-slow", "compute.memory-slow-unlisted", "compute.slow-unlicensed"),
}
LOW = {
    MATRIX: ("compute.matrix-below-ceiling", "compute.matrix-below-ceiling", "compute.slow-unlicensed"),
    MEMORY: ("compute.memory-below-ceiling", "compute.memory-below-ceiling-unlisted", "compute.slow-unlicensed"),
}


class Value(NamedTuple):
    """One rate of one device. value: comparable between GPUs. shown: in its unit. error: relative standard error."""

    value: float
    shown: float
    error: float
    of_ceiling: float | None
    least: float | None


class Loss(NamedTuple):
    """A rate below that of the peers. limit: the loss from which it counts. alone: the loss with no other at work."""

    what: str
    loss: float
    limit: float
    shown: float
    peers: float
    alone: float | None


def _code(codes: tuple[str, str, str], device: ComputeDevice) -> str:
    """A board whose rates are not known, or that lacks its license, is not suspected itself."""
    listed, unlisted, unlicensed = codes
    if device.licensed is False:
        return unlicensed
    return listed if operations_per_clock(device.capability, device.name) else unlisted


def matrix(facts: Facts) -> Iterator[Finding]:
    """Matrices: does every GPU multiply as fast as its clock allows, and as the others of its model?

    Source: products in each type on all GPUs at the same time; what looks slow is measured again alone.
    WARN below the ceiling of the GPU, or per clock below the others; FAIL if it is far below them alone, too. UNKNOWN
    without a clock to compare at, or where GPUs differ too much. SKIP with neither ceiling nor other GPU.
    """
    yield from _evaluated(MATRIX, facts)


def memory(facts: Facts) -> Iterator[Finding]:
    """Memory: does every GPU read, write and copy its memory as fast as its bus allows, and as the others of its model?

    Source: reads, writes and copies on all GPUs at the same time; what looks slow is measured again alone.
    WARN below the ceiling of the GPU, or below the others; FAIL if it is far below them alone, too. UNKNOWN where GPUs
    differ too much. SKIP with neither ceiling nor other GPU.
    """
    yield from _evaluated(MEMORY, facts)


def _evaluated(check: str, facts: Facts) -> Iterator[Finding]:
    for group in models(gpus(facts.computed.devices)):
        compared, left = _comparable(check, group)
        yield from _rates(check, compared, shared=facts.computed.shared)
        for device in left:
            yield subject_of(check, device).unknown("compute.clock-not-read", "rate per clock unknown")


def _comparable(check: str, group: Sequence[ComputeDevice]) -> tuple[list[ComputeDevice], list[ComputeDevice]]:
    """Return the devices with a rate, and those whose rate of matrices has no clock while that of others has one."""
    having = [one for one in group if any(_value(check, one, what) for what in _all(check))]
    left = [one for one in having if any(rate.tflops and rate.clock_mhz is None for rate in one.gemm.values())]
    if check == MEMORY or len(left) == len(having):
        return having, []
    return [one for one in having if one not in left], left


def doubtful(devices: Sequence[ComputeDevice]) -> tuple[Low, ...]:
    """Return what to measure again alone, the largest loss first."""
    found: list[tuple[float, Low]] = []
    for group in models(gpus(devices)):
        for check in (MATRIX, MEMORY):
            compared, _ = _comparable(check, group)
            for device in compared:
                for loss in _losses(check, compared, device)[:1]:
                    kind: Literal["matrix", "memory"] = "matrix" if check == MATRIX else "memory"
                    found.append((-loss.loss, Low(devices.index(device), kind, loss.what)))
    return tuple(low for _, low in sorted(found))


def _all(check: str) -> tuple[str, ...]:
    return TYPES if check == MATRIX else WAYS


def _value(check: str, device: ComputeDevice, what: str) -> Value | None:
    least = compute_table().least_part
    if check == MEMORY:
        memory = device.memory
        rate: float | None = getattr(memory, f"{what}_gb_s")
        if rate is None:
            return None
        part = rate / memory.ceiling_gb_s if memory.ceiling_gb_s else None
        return Value(rate, rate, _error(memory.mad_percent[what], memory.samples[what]), part, least.memory)
    made = device.gemm.get(what)
    if made is None or made.tflops is None:
        return None
    floor = least.matrix.get(what)  # type: ignore[call-overload]  # one of its types
    error = _error(made.mad_percent or 0.0, made.samples)
    return Value(made.tflops / (made.clock_mhz or 1.0), made.tflops, error, made.of_ceiling, floor)


def _error(mad_percent: float, samples: int) -> float:
    return 1.2533 * 1.4826 * mad_percent / 100 / math.sqrt(max(samples, 1))


def _alone(check: str, device: ComputeDevice, what: str) -> float | None:
    rate: Rate | None = device.memory.alone.get(what) if check == MEMORY else device.gemm[what].alone
    if rate is None:
        return None
    if check == MEMORY or device.gemm[what].clock_mhz is None:
        return rate.median
    return rate.median / rate.clock_mhz if rate.clock_mhz else None


def _losses(check: str, group: Sequence[ComputeDevice], device: ComputeDevice) -> list[Loss]:
    least = compute_table().peers.warn_loss
    found = []
    for what in _all(check):
        values = {one.index: value for one in group if (value := _value(check, one, what))}
        mine = values.get(device.index)
        loss = losses({index: value.value for index, value in values.items()}).get(device.index)
        if mine is None or loss is None:
            continue
        noise = spread_of_others({index: value.value for index, value in values.items()}, device.index)
        limit = max(least, SIGMAS * (noise**2 + mine.error**2) ** 0.5)
        if loss > limit:
            peers = mine.value / (1 - loss)
            alone = _alone(check, device, what)
            shown = mine.shown / (1 - loss)
            found.append(Loss(what, loss, limit, mine.shown, shown, 1 - alone / peers if alone is not None else None))
    return sorted(found, key=lambda one: -one.loss)


def _rates(check: str, group: Sequence[ComputeDevice], *, shared: bool) -> Iterator[Finding]:
    if not group:
        return
    slow = {device.index: _losses(check, group, device) for device in group}
    found: list[Finding] = []
    for device in group:
        low = slow[device.index]
        found += [_slower(check, device, low, shared=shared)] if low else _below_ceiling(check, device)
    yield from found
    if len(group) > 1 and not any(slow.values()):
        yield _no_outlier(check, group)
    elif len(group) == 1 and not found:
        seen = f"{_summary(check, group[0])}; no other GPU of this model to compare with"
        subject, every = subject_of(check, group[0]), (_value(check, group[0], what) for what in _all(check))
        judged = any(value and None not in (value.of_ceiling, value.least) for value in every)
        yield subject.passes(seen) if judged else subject.skips("compute.nothing-to-compare", seen)


def _slower(check: str, device: ComputeDevice, low: Sequence[Loss], *, shared: bool) -> Finding:
    worst, limits = low[0], compute_table().peers
    unit = "TFLOPS" if check == MATRIX else "GB/s"
    clock = " at equal clock" if check == MATRIX else ""
    evidence = [
        f"{loss.what}: {loss.shown:.4g} {unit}, {loss.peers:.4g} expected from the other GPUs{clock}, "
        f"{loss.loss:.1%} less" + (f"; {loss.alone:.1%} less alone" if loss.alone is not None else "")
        for loss in low
    ]
    if device.gsp_firmware is not None:
        evidence.append(f"GSP firmware {device.gsp_firmware}")
    subject = subject_of(check, device, *evidence, unit=unit)
    shown, wanted = round(worst.shown, 1), round(worst.peers * (1 - worst.limit), 1)
    if worst.alone is not None and worst.alone <= worst.limit / 2:
        return subject.warns("compute.slow-together", shown, wanted, what=worst.what)
    code = _code(SLOW[check], device)
    fails = worst.alone is not None and worst.loss >= limits.fail_loss
    if fails and shared:  # the rate of other processes as well
        cause = code_of(code).cause
        code = "compute.rate-low-contended"
        return subject.warns(code, shown, wanted, cause=cause, confidence="possible", what=worst.what)
    sure: Confidence = "likely" if worst.alone is not None else "possible"
    return (subject.fails if fails else subject.warns)(code, shown, wanted, confidence=sure, what=worst.what)


def _below_ceiling(check: str, device: ComputeDevice) -> Iterator[Finding]:
    low = []
    for what in _all(check):
        value = _value(check, device, what)
        if value and value.of_ceiling is not None and value.least is not None and value.of_ceiling < value.least:
            low.append((value.of_ceiling, value.least, what))
    if low:
        part, least, what = min(low)
        subject = subject_of(check, device, *(f"{name}: {found:.0%} of its ceiling" for found, _, name in low))
        code, wanted = _code(LOW[check], device), f"{least:.0%} or more"
        yield subject.warns(code, f"{part:.0%}", wanted, confidence="possible", what=what)


def _no_outlier(check: str, group: Sequence[ComputeDevice]) -> Finding:
    """PASS only if a loss that counts would have been seen: the spread of the GPUs decides."""
    limits = compute_table().peers
    seen = [
        SIGMAS * spread_of_others(values, index)
        for what in _all(check)
        if len(values := {d.index: v.value for d in group if (v := _value(check, d, what))}) > 1
        for index in values
    ]
    visible = max([limits.warn_loss, *seen])
    subject = Subject(check=check, evidence=tuple(_summary(check, device) for device in group))
    count = f"{len(group)} {group[0].name}"
    if visible > 2 * limits.fail_loss:
        subject = subject.with_evidence(*subject.evidence, f"a loss below {visible:.0%} would not be seen")
        return subject.unknown("compute.gpus-differ", f"outliers unknown: {count} differ", "equal GPUs")
    clock = " at equal clock" if check == MATRIX else ""
    return subject.passes(f"{count}: no GPU more than {visible:.0%} slower than the others{clock}")


def _summary(check: str, device: ComputeDevice) -> str:
    parts: Iterable[str] = (
        f"{what} {value.shown:.4g}" + (f" ({value.of_ceiling:.0%} of the ceiling)" if value.of_ceiling else "")
        for what in _all(check)
        if (value := _value(check, device, what))
    )
    return f"GPU {device.index}: {', '.join(parts)} {'TFLOPS' if check == MATRIX else 'GB/s'}"


CHECKS = (compute_check(MATRIX, matrix), compute_check(MEMORY, memory))
