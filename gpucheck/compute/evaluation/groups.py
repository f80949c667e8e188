"""Devices that can be compared, and how far one of them is from the others. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from gpucheck.model import Finding
from gpucheck.model.compute import ComputeDevice
from gpucheck.model.finding.about import About

NAME = "compute-errors"


class _Kind(NamedTuple):
    cause: str
    fails: bool
    why: str
    fix: str


ECC = _Kind(
    "ecc-uncorrected", True, "memory errors that ECC could not correct", "reset the GPU; if they return, replace it"
)
PCIE = _Kind(
    "pcie-errors", False, "errors on the PCIe link during load", "reseat the card or riser; gpucheck bandwidth"
)
FATAL = _Kind("pcie-errors", True, "uncorrectable errors on the PCIe link during load", PCIE.fix)
NVLINK = _Kind("nvlink-errors", False, "errors on NVLinks during load", "reseat bridge or board; gpucheck bandwidth")
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
        found: dict[str, list[str]] = {}
        for name in KINDS:
            if device.errors.get(name):
                found.setdefault(KINDS[name].cause, []).append(name)
        for names in found.values():
            kind = KINDS[names[0]]
            made = about(NAME, device, *(f"{name} rose by {device.errors[name]}" for name in names))
            seen = ", ".join(f"{device.errors[name]} {name}" for name in names)
            yield (made.fails if kind.fails else made.warns)(seen, "no errors", kind.why, kind.fix, kind.cause)


MAD_TO_DEVIATION = 1.4826
UNLICENSED = "vgpu-unlicensed"
NO_LICENSE = "this virtual GPU has no license, and without it the driver lowers its clocks"
LICENSE = "systemctl status nvidia-gridd; nvidia-smi -q | grep -i license; then: gpucheck verify --only vgpu-license"
SURE = 4.0  # standard deviations: once in 16,000 comparisons of healthy GPUs


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


def about(check: str, device: ComputeDevice, *evidence: str, unit: str | None = None) -> About:
    """Return the builder of findings of a device; CPU processes are the host."""
    subject = f"gpu:{device.bus_id}" if device.bus_id else "host"
    return About(check=check, subject=subject, unit=unit, evidence=evidence)


def gpus(devices: Sequence[ComputeDevice]) -> tuple[ComputeDevice, ...]:
    """Return the GPUs; CPU processes have no ceiling and no clock to compare."""
    return tuple(device for device in devices if device.is_gpu)


def others(count: int) -> str:
    """Return what the other GPUs of a group are called. count: of the whole group."""
    return "other GPU of this model" if count == 2 else f"other {count - 1} GPUs of this model"
