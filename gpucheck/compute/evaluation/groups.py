"""Devices that can be compared, and how far one of them is from the others. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from gpucheck.knowledge.codes import Subject, code_of
from gpucheck.model import Finding
from gpucheck.model.compute import ComputeDevice

NAME = "compute-errors"


class _Kind(NamedTuple):
    code: str
    fails: bool = False


ECC = _Kind("compute.ecc-uncorrected", fails=True)
PCIE = _Kind("compute.pcie-errors")
FATAL = _Kind("compute.pcie-uncorrectable", fails=True)
NVLINK = _Kind("compute.nvlink-errors")
KINDS = {
    "ecc_uncorrected": ECC,
    "pcie_fatal": FATAL,
    "pcie_non_fatal": FATAL,
    "pcie_replays": PCIE,
    "pcie_correctable": PCIE,
    "nvlink_crc": NVLINK,
    "nvlink_replays": NVLINK,
    "nvlink_recoveries": NVLINK,
}


def counters(devices: Sequence[ComputeDevice]) -> Iterator[Finding]:
    """Yield one finding for each GPU and cause. Errors that ECC corrected are evidence of no fault by themselves."""
    for device in gpus(devices):
        found: dict[str | None, list[str]] = {}
        for name in KINDS:
            if device.errors.get(name):
                found.setdefault(code_of(KINDS[name].code).cause, []).append(name)
        for names in found.values():
            kind = KINDS[names[0]]
            subject = subject_of(NAME, device, *(f"{name} rose by {device.errors[name]}" for name in names))
            seen = ", ".join(f"{device.errors[name]} {name}" for name in names)
            yield (subject.fails if kind.fails else subject.warns)(kind.code, seen, "no errors")


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
