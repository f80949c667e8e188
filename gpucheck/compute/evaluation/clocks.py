"""Clocks under load: what holds the clock of a GPU, and does it hold that GPU alone?"""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from gpucheck.compute.evaluation.groups import LICENSE, NO_LICENSE, UNLICENSED, about, gpus, losses, models, others
from gpucheck.knowledge.compute import compute_table
from gpucheck.model import Finding
from gpucheck.model.compute import ComputeDevice
from gpucheck.model.finding.about import About

NAME = "compute-clocks"
# A reason counts from this part of the readings on: one at a change of load is normal.
LEAST_SHARE = 0.05
TOLERANCE_W = 1.0
HEAT = "check airflow, fans, dust, and the contact of cooler and GPU"
POWER = "check power supplies, power cables and the power brake signal of the chassis"
HARDWARE = {
    "hw-power-brake": ("an external power brake (power supply or chassis) lowers the clock", POWER),
    "hw-thermal": ("the hardware lowers the clock because the GPU is too hot", HEAT),
    "hw-slowdown": ("the hardware lowers the clock: heat, power brake or voltage", f"{HEAT}; {POWER}"),
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
            yield About(check=NAME, evidence=evidence).passes(f"{len(read)} {read[0].name}: {shown}")


def _held(
    device: ComputeDevice, means: dict[int, float], loss: float, group: Sequence[ComputeDevice]
) -> Finding | None:
    limit = compute_table().peers.clock_loss
    share = shares(device)
    middle = median(value for index, value in means.items() if index != device.index) if len(means) > 1 else None
    made = about(NAME, device, *(_summary(one) for one in group), unit="MHz")
    seen, wanted = round(means[device.index]), round(middle) if middle is not None else None
    more = f"nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {device.bus_id}"
    scope = _scope(loss, limit, len(group))
    for reason, (why, fix) in HARDWARE.items():
        if share.get(reason, 0.0) >= LEAST_SHARE:
            return made.fails(
                seen, wanted, f"{why} ({share[reason]:.0%} of the load){scope}", f"{fix}; {more}", "throttled"
            )
    if share.get("sw-thermal", 0.0) >= LEAST_SHARE:
        hot = max((s.temperature_c for s in device.traces if s.temperature_c is not None), default=None)
        degrees = f" at {hot:.0f} C" if hot is not None else ""
        why = f"the driver lowers the clock because of heat{degrees} ({share['sw-thermal']:.0%} of the load){scope}"
        worse = made.fails if loss > limit else made.warns
        return worse(seen, wanted, why, f"{HEAT}; {more}", "throttled")
    capped = share.get("sw-power-cap", 0.0) >= LEAST_SHARE
    if capped and _below(device.power_limit_w, device.power_default_w, TOLERANCE_W):
        why = (
            f"a power limit of {device.power_limit_w:g} W, default {device.power_default_w:g} W, holds the clock{scope}"
        )
        fix = f"nvidia-smi -i {device.bus_id} -pl {device.power_default_w:g}, if the limit is not intentional"
        return made.warns(seen, wanted, why, fix, "power-limit-lowered")
    if _below(device.application_clock_mhz, device.default_application_clock_mhz, 0):
        why = f"the application clock is set below its default of {device.default_application_clock_mhz} MHz{scope}"
        return made.warns(
            seen, wanted, why, f"nvidia-smi -i {device.bus_id} -rac, if it is not intentional", "clock-limited"
        )
    if loss > limit and device.licensed is False:
        why = f"the clock under load is {loss:.0%} below that of the {others(len(group))}; {NO_LICENSE}"
        return made.warns(seen, wanted, why, LICENSE, UNLICENSED, "likely")
    if loss > limit:
        power = ", at its power limit: it needs more power for the same clock" if capped else ""
        why = f"the clock under load is {loss:.0%} below that of the {others(len(group))}{power}"
        return made.warns(seen, wanted, why, f"{HEAT}; {more}", None)
    return None


def _scope(loss: float, limit: float, count: int) -> str:
    """Return the comparison with the other GPUs, empty if the clock is like theirs."""
    return f"; its clock is {loss:.0%} below that of the {others(count)}" if loss > limit else ""


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
    why = "NVML reported no clock while the GPUs computed"
    return About(check=NAME).unknown(
        why, "gpucheck verify --only driver", "clocks under load unknown", wanted=f"the clock of {device.name}"
    )
