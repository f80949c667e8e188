"""What the rules of computing share: GPUs of one model on one host are compared with each other."""

from collections.abc import Callable, Iterable, Mapping
from statistics import median

from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding
from gpucheck.model.compute import ComputeDevice
from gpucheck.model.facts import Facts

Rule = Callable[[Facts], Iterable[Finding]]
TAGS = frozenset({"measure", "compute"})
MAD_TO_DEVIATION = 1.4826


def compute_check(name: str, rule: Rule, limits: tuple[str, ...] = ()) -> Check:
    return Check(name, TAGS, rule, ("computed",), thresholds=limits)


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
    return Subject(check=check, name=device.subject, unit=unit, evidence=evidence)


def gpus(devices: Iterable[ComputeDevice]) -> tuple[ComputeDevice, ...]:
    """Return the GPUs; CPU processes have no ceiling and no clock to compare."""
    return tuple(device for device in devices if device.is_gpu)
