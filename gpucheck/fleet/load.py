"""Readings of GPUs under load, reduced: the highest temperature, what held the clock, errors that were counted.

A report has thousands of readings. Compared between hosts are a few numbers of each GPU.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

STEP = "compute"
HOTTEST = {"temperature_c": "compute.temperature_c", "memory_temperature_c": "compute.memory_temperature_c"}
# Reasons that show a fault of cooling or power. Healthy GPUs reach their power limit under load.
REASONS = ("hw-power-brake", "hw-slowdown", "hw-thermal", "sw-thermal")
THROTTLED, ERRORS = "compute.throttled_percent", "compute.errors_count"
UNDER_LOAD = frozenset({*HOTTEST.values(), THROTTLED, ERRORS})
MAX_GPUS, MAX_READINGS = 64, 100_000


def load_numbers(measurements: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Yield metric, GPU and value. What has not the form of the step is left out."""
    step = measurements.get(STEP)
    gpus = step.get("gpus") if isinstance(step, dict) else None
    for gpu in gpus[:MAX_GPUS] if isinstance(gpus, list) else ():
        place = gpu.get("gpu") if isinstance(gpu, dict) else None
        if type(place) is int and isinstance(gpu.get("bus_id"), str):
            for metric, value in _of_gpu(gpu):
                yield metric, (str(place),), value


def _of_gpu(gpu: dict[str, Any]) -> Iterator[tuple[str, float]]:
    traces, errors = gpu.get("traces"), gpu.get("errors")
    if not isinstance(traces, list) or not traces:
        return
    readings = [reading for reading in traces[:MAX_READINGS] if isinstance(reading, dict)]
    for key, metric in HOTTEST.items():
        degrees = [float(value) for reading in readings if _is_number(value := reading.get(key))]
        if degrees and -300 < max(degrees) < 1000:
            yield metric, max(degrees)
    reported = [reasons for reading in readings if isinstance(reasons := reading.get("reasons"), list)]
    if reported:
        for reason in REASONS:
            yield f"{THROTTLED}[{reason}]", 100 * sum(reason in reasons for reasons in reported) / len(reported)
    if isinstance(errors, dict):
        counts = [value for value in errors.values() if type(value) is int and 0 < value < 2**63]
        yield ERRORS, float(sum(counts))


def _is_number(value: Any) -> TypeGuard[float]:
    return type(value) is float or (type(value) is int and abs(value) < 2**63)
