"""Rates of matrices and memory: against the ceiling of the GPU, and against GPUs of the same model.

A rate of matrices is compared per clock, because healthy GPUs run at different clocks within one power limit; the clock
itself is evaluated in ``clocks``. Numbers alone never make a finding certain.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Literal, NamedTuple

from gpucheck.compute.values import ALONE_S, TYPES, WAYS, ComputeStep
from gpucheck.knowledge.codes import Subject, code_of
from gpucheck.knowledge.compute import compute_table, operations_per_clock
from gpucheck.model import Finding
from gpucheck.model.compute import ComputeDevice, Rate
from gpucheck.model.finding import Confidence

NAME = "compute-errors"


ECC, PCIE, NVLINK = "compute.ecc-uncorrected", "compute.pcie-errors", "compute.nvlink-errors"
KINDS = {
    "ecc_uncorrected": ECC,
    "pcie_fatal": "compute.pcie-uncorrectable",
    "pcie_non_fatal": "compute.pcie-uncorrectable",
    "pcie_replays": PCIE,
    "pcie_correctable": PCIE,
    "nvlink_crc": NVLINK,
    "nvlink_replays": NVLINK,
    "nvlink_recoveries": NVLINK,
}
FATAL = ("ecc_uncorrected", "pcie_fatal", "pcie_non_fatal")


def counters(devices: Sequence[ComputeDevice]) -> Iterator[Finding]:
    """Yield one finding for each GPU and cause. Errors that ECC corrected are evidence of no fault by themselves."""
    for device in gpus(devices):
        found: dict[str | None, list[str]] = {}
        for name in KINDS:
            if device.errors.get(name):
                found.setdefault(code_of(KINDS[name]).cause, []).append(name)
        for names in found.values():
            subject = subject_of(NAME, device, *(f"{name} rose by {device.errors[name]}" for name in names))
            seen = ", ".join(f"{device.errors[name]} {name}" for name in names)
            yield (subject.fails if names[0] in FATAL else subject.warns)(KINDS[names[0]], seen, "no errors")


MAD_TO_DEVIATION = 1.4826
SIGMAS = 4.0  # standard deviations: once in 16,000 comparisons of healthy GPUs


def models(devices: Iterable[ComputeDevice]) -> tuple[tuple[ComputeDevice, ...], ...]:
    """Return the devices by model, in order. GPUs with another number of multiprocessors are another model."""
    found: dict[tuple[object, ...], list[ComputeDevice]] = {}
    for device in devices:
        found.setdefault((device.name, device.multiprocessors, device.memory_clock_mhz), []).append(device)
    return tuple(map(tuple, found.values()))


def losses(values: Mapping[int, float]) -> dict[int, float]:
    """Return how far each value is below the median of the others, as a fraction; negative above. One value: none."""
    if len(values) < 2:
        return {}
    return {key: 1 - value / median(_without(values, key)) for key, value in values.items()}


def spread_of_others(values: Mapping[int, float], key: int) -> float:
    """Return the standard deviation of the other values as a fraction, estimated from their median deviation."""
    others = _without(values, key)
    middle = median(others)
    return MAD_TO_DEVIATION * median(abs(value - middle) for value in others) / middle


def _without(values: Mapping[int, float], key: int) -> list[float]:
    return [value for other, value in values.items() if other != key]


def subject_of(check: str, device: ComputeDevice, *evidence: str, unit: str | None = None) -> Subject:
    """Return the builder of findings of a device; CPU processes are the host."""
    name = f"gpu:{device.bus_id}" if device.bus_id else "host"
    return Subject(check=check, name=name, unit=unit, evidence=evidence)


def gpus(devices: Sequence[ComputeDevice]) -> tuple[ComputeDevice, ...]:
    """Return the GPUs; CPU processes have no ceiling and no clock to compare."""
    return tuple(device for device in devices if device.is_gpu)


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


def rates(devices: Sequence[ComputeDevice]) -> Iterator[Finding]:
    for group in models(gpus(devices)):
        for check in (MATRIX, MEMORY):
            compared, left = _comparable(check, group)
            yield from _rates(check, compared)
            for device in left:
                yield subject_of(check, device).unknown("compute.clock-not-read", "rate per clock unknown")


def _comparable(check: str, group: Sequence[ComputeDevice]) -> tuple[list[ComputeDevice], list[ComputeDevice]]:
    """Return the devices with a rate, and those whose rate of matrices has no clock while that of others has one."""
    having = [one for one in group if any(_value(check, one, what) for what in _all(check))]
    left = [one for one in having if any(rate.tflops and rate.clock_mhz is None for rate in one.gemm.values())]
    if check == MEMORY or len(left) == len(having):
        return having, []
    return [one for one in having if one not in left], left


def doubtful(devices: Sequence[ComputeDevice]) -> tuple[tuple[int, ComputeStep], ...]:
    """Return what to measure again alone: the place of the device among all, and the step. The largest loss first."""
    found: list[tuple[float, int, ComputeStep]] = []
    kinds: dict[str, Literal["matrix", "memory"]] = {MATRIX: "matrix", MEMORY: "memory"}
    for group in models(gpus(devices)):
        for check, kind in kinds.items():
            compared, _ = _comparable(check, group)
            for device in compared:
                found += [
                    (-loss.loss, devices.index(device), ComputeStep(kind=kind, what=loss.what, seconds=ALONE_S))
                    for loss in _losses(check, compared, device)[:1]
                ]
    return tuple((place, step) for _, place, step in sorted(found, key=lambda item: item[:2]))


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


def _rates(check: str, group: Sequence[ComputeDevice]) -> Iterator[Finding]:
    if not group:
        return
    slow = {device.index: _losses(check, group, device) for device in group}
    found: list[Finding] = []
    for device in group:
        low = slow[device.index]
        found += [_slower(check, device, low)] if low else _below_ceiling(check, device)
    yield from found
    if len(group) > 1 and not any(slow.values()):
        yield _no_outlier(check, group)
    elif len(group) == 1 and not found:
        seen = f"{_summary(check, group[0])}; no other GPU of this model to compare with"
        subject, every = subject_of(check, group[0]), (_value(check, group[0], what) for what in _all(check))
        judged = any(value and None not in (value.of_ceiling, value.least) for value in every)
        yield subject.passes(seen) if judged else subject.skips("compute.nothing-to-compare", seen)


def _slower(check: str, device: ComputeDevice, low: Sequence[Loss]) -> Finding:
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


CLOCKS = "compute-clocks"
# A reason counts from this part of the readings on: one at a change of load is normal.
LEAST_SHARE = 0.05
TOLERANCE_W = 1.0
HARDWARE = {
    "hw-power-brake": "compute.clock-power-brake",
    "hw-thermal": "compute.clock-too-hot",
    "hw-slowdown": "compute.clock-slowdown",
}


def clocks(devices: Sequence[ComputeDevice]) -> Iterator[Finding]:
    """Yield a finding for each GPU whose clock is held, or one for all."""
    for group in models(gpus(devices)):
        read = [device for device in group if any(s.sm_clock_mhz is not None for s in device.traces)]
        yield from _unread([one for one in group if one not in read and one.failed is None], alone=not read)
        if not read:
            continue
        means = {device.index: _clock(device) for device in read}
        lost = losses(means)
        found = [finding for device in read if (finding := _held(device, means, lost.get(device.index, 0.0), read))]
        yield from found
        if not found:
            shown = f"{min(means.values()):.0f} to {max(means.values()):.0f} MHz under load"
            subject = Subject(check=CLOCKS, evidence=tuple(_clock_summary(device) for device in read))
            if any(s.reasons is not None for device in read for s in device.traces):
                yield subject.passes(f"{len(read)} {read[0].name}: {shown}")
            else:  # equal GPUs may all be held
                yield subject.unknown("compute.clock-reasons-not-read", shown, "what holds the clock")


def _held(
    device: ComputeDevice, means: dict[int, float], loss: float, group: Sequence[ComputeDevice]
) -> Finding | None:
    limit = compute_table().peers.clock_loss
    share = shares(device)
    middle = median(value for index, value in means.items() if index != device.index) if len(means) > 1 else None
    subject = subject_of(CLOCKS, device, *(_clock_summary(one) for one in group), unit="MHz")
    seen, wanted = round(means[device.index]), round(middle) if middle is not None else None
    for reason, code in HARDWARE.items():
        if share.get(reason, 0.0) >= LEAST_SHARE:
            return subject.fails(code, seen, wanted)
    if share.get("sw-thermal", 0.0) >= LEAST_SHARE:
        return (subject.fails if loss > limit else subject.warns)("compute.clock-heat-limit", seen, wanted)
    capped = share.get("sw-power-cap", 0.0) >= LEAST_SHARE
    watts, usual_watts = device.power_limit_w, device.power_default_w
    if capped and _below(watts, usual_watts, TOLERANCE_W):
        code = "compute.power-limit-holds-clock"
        return subject.warns(code, seen, wanted, limit_w=watts, default_w=usual_watts)
    if _below(device.application_clock_mhz, device.default_application_clock_mhz, 0):
        usual = device.default_application_clock_mhz
        return subject.warns("compute.application-clock-lowered", seen, wanted, default_mhz=usual)
    if loss <= limit:
        return None
    if device.licensed is False:
        return subject.warns("compute.clock-unlicensed", seen, wanted)
    return subject.warns("compute.clock-low-at-power-limit" if capped else "compute.clock-low", seen, wanted)


def _below(value: float | None, default: float | None, tolerance: float) -> bool:
    return value is not None and default is not None and 0 < value < default - tolerance


def _clock(device: ComputeDevice) -> float:
    return median(s.sm_clock_mhz for s in device.traces if s.sm_clock_mhz is not None)


def shares(device: ComputeDevice) -> dict[str, float]:
    """Return the part of the readings in which each reason held the clock."""
    reported = [sample.reasons for sample in device.traces if sample.reasons is not None]
    counts = Counter(reason for reasons in reported for reason in reasons)
    return {reason: count / len(reported) for reason, count in counts.items()}


def _clock_summary(device: ComputeDevice) -> str:
    parts = [f"{_clock(device):.0f} MHz"]
    for values, unit in (
        ([s.power_w for s in device.traces if s.power_w is not None], "W"),
        ([s.temperature_c for s in device.traces if s.temperature_c is not None], "C"),
    ):
        if values:
            parts.append(f"at most {max(values):.0f} {unit}")
    read = any(sample.reasons is not None for sample in device.traces)
    held = ", ".join(f"{reason} {part:.0%}" for reason, part in sorted(shares(device).items()))
    held = held or ("nothing" if read else "what NVML does not report")
    return f"GPU {device.index}: {', '.join(parts)}; clock held by {held}"


def _unread(devices: Sequence[ComputeDevice], *, alone: bool) -> Iterator[Finding]:
    """Yield one finding for each, or one in all where no GPU of the model has a clock (alone)."""
    for device in devices[:1] if alone else devices:
        subject = Subject(check=CLOCKS) if alone else subject_of(CLOCKS, device)
        wanted = f"the clock of {device.name}"
        yield subject.unknown("compute.clock-not-read", "clocks under load unknown", wanted)
