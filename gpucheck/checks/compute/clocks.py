"""Clocks: does every GPU run as fast as it may, and as the others of its model?

Source: NVML, read while the GPUs compute: clock, power, temperature, and what holds the clock.
FAIL if the hardware or heat lowers the clock; WARN for a lowered limit of power or clock, or a clock below that of the
others. UNKNOWN where NVML does not report the clock, or what holds it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from gpucheck.checks.compute._devices import compute_check, gpus, losses, models, subject_of
from gpucheck.knowledge.codes import Subject, code_of
from gpucheck.knowledge.compute import compute_table
from gpucheck.model import Finding
from gpucheck.model.compute import FATAL, ComputeDevice
from gpucheck.model.facts import Facts

NAME, ERRORS = "compute-clocks", "compute-errors"
# A reason counts from this part of the readings on: one at a change of load is normal.
LEAST_SHARE = 0.05
TOLERANCE_W = 1.0
HARDWARE = {
    "hw-power-brake": "compute.clock-power-brake",
    "hw-thermal": "compute.clock-too-hot",
    "hw-slowdown": "compute.clock-slowdown",
}


def evaluate(facts: Facts) -> Iterator[Finding]:
    for group in models(gpus(facts.computed.devices)):
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
            subject = Subject(check=NAME, evidence=tuple(_clock_summary(device) for device in read))
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
    subject = subject_of(NAME, device, *(_clock_summary(one) for one in group), unit="MHz")
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
        subject = Subject(check=NAME) if alone else subject_of(NAME, device)
        wanted = f"the clock of {device.name}"
        yield subject.unknown("compute.clock-not-read", "clocks under load unknown", wanted)


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


def errors(facts: Facts) -> Iterator[Finding]:
    """Errors under load: which error counters rose while the GPUs computed?

    Source: NVML's counters of memory, PCIe link and NVLinks, before and after.
    FAIL for errors that were not corrected, WARN for errors of links. Errors that ECC corrected prove no fault.
    """
    for device in gpus(facts.computed.devices):
        found: dict[str | None, list[str]] = {}
        for name in KINDS:
            if device.errors.get(name):
                found.setdefault(code_of(KINDS[name]).cause, []).append(name)
        for names in found.values():
            subject = subject_of(ERRORS, device, *(f"{name} rose by {device.errors[name]}" for name in names))
            seen = ", ".join(f"{device.errors[name]} {name}" for name in names)
            yield (subject.fails if names[0] in FATAL else subject.warns)(KINDS[names[0]], seen, "no errors")


CHECKS = (compute_check(NAME, evaluate), compute_check(ERRORS, errors))
