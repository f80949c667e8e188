"""Clocks under load: what holds the clock of a GPU, and does it hold that GPU alone?"""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from gpucheck.compute.evaluation.groups import gpus, losses, models, subject_of
from gpucheck.knowledge.codes import Subject
from gpucheck.knowledge.compute import compute_table
from gpucheck.model import Finding
from gpucheck.model.compute import ComputeDevice

NAME = "compute-clocks"
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
        if not read:
            if any(device.failed is None for device in group):
                yield _unread(group[0])
            continue
        means = {device.index: _clock(device) for device in read}
        lost = losses(means)
        found = [finding for device in read if (finding := _held(device, means, lost.get(device.index, 0.0), read))]
        yield from found
        if not found:
            shown = f"{min(means.values()):.0f} to {max(means.values()):.0f} MHz under load"
            evidence = tuple(_summary(device) for device in read)
            yield Subject(check=NAME, evidence=evidence).passes(f"{len(read)} {read[0].name}: {shown}")


def _held(
    device: ComputeDevice, means: dict[int, float], loss: float, group: Sequence[ComputeDevice]
) -> Finding | None:
    limit = compute_table().peers.clock_loss
    share = shares(device)
    middle = median(value for index, value in means.items() if index != device.index) if len(means) > 1 else None
    subject = subject_of(NAME, device, *(_summary(one) for one in group), unit="MHz")
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
    """Return the median clock under load."""
    return median(s.sm_clock_mhz for s in device.traces if s.sm_clock_mhz is not None)


def shares(device: ComputeDevice) -> dict[str, float]:
    """Return the part of the readings in which each reason held the clock."""
    reported = [sample.reasons for sample in device.traces if sample.reasons is not None]
    counts = Counter(reason for reasons in reported for reason in reasons)
    return {reason: count / len(reported) for reason, count in counts.items()}


def _summary(device: ComputeDevice) -> str:
    parts = [f"{_clock(device):.0f} MHz"]
    for values, unit in (
        ([s.power_w for s in device.traces if s.power_w is not None], "W"),
        ([s.temperature_c for s in device.traces if s.temperature_c is not None], "C"),
    ):
        if values:
            parts.append(f"at most {max(values):.0f} {unit}")
    held = ", ".join(f"{reason} {part:.0%}" for reason, part in sorted(shares(device).items())) or "nothing"
    return f"GPU {device.index}: {', '.join(parts)}; clock held by {held}"


def _unread(device: ComputeDevice) -> Finding:
    wanted = f"the clock of {device.name}"
    return Subject(check=NAME).unknown("compute.clock-not-read", "clocks under load unknown", wanted)
