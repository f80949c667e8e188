"""How Linux writes what NVML writes its own way."""

from typing import Any


def plain(value: str | bytes) -> str:
    """pynvml gives bytes or text, as the function and its release please."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def normal_bus_id(nvml: str) -> str:
    """NVML's ``00000000:3B:00.0`` as Linux writes it: ``0000:3b:00.0``."""
    domain, rest = nvml.lower().split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"


def cpu_list(cpus: list[int]) -> str:
    """CPU numbers as Linux lists them: ``0-15,32-47``."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1][1:] = [cpu]
        else:
            runs.append([cpu])
    return ",".join("-".join(map(str, run)) for run in runs)


def bits(words: Any) -> list[int]:
    """The numbers of the bits that are set in an array of 64-bit words; none where there is no array."""
    if words is None:
        return []
    return [64 * position + bit for position, word in enumerate(words) if word for bit in range(64) if word >> bit & 1]
