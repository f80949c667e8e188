"""NVML's notation as Linux writes it."""

import ctypes
import re
from typing import Any

# As NVML writes them (eight digits of domain) and as Linux does (four).
BUS_ID = re.compile(r"(?P<domain>[0-9a-f]{4,8}):(?P<rest>[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
NOTHING = 0xFFFFFFFF  # NVML's domain of a device that it does not know


def plain(value: str | bytes) -> str:
    """Return text; pynvml gives bytes or text, as the function and its release please."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    return text.encode(errors="replace").decode()


def raw_text(structure: Any, field: str) -> str:
    """Return a text field of one of pynvml's structures, which decode strictly where they are read as attributes."""
    return plain(ctypes.Structure.__getattribute__(structure, field))


def normal_bus_id(nvml: str) -> str | None:
    """Return NVML's ``00000000:3B:00.0`` as ``0000:3b:00.0``; None for anything else.

    NVML answers an empty text, unprintable bytes or all ones for a device that it cannot see (NCCL, src/graph/xml.cc).
    """
    found = BUS_ID.fullmatch(nvml.strip().lower())
    if found is None or int(found["domain"], 16) == NOTHING:
        return None
    return f"{int(found['domain'], 16):04x}:{found['rest']}"


def cpu_list(cpus: list[int]) -> str:
    """Return CPU numbers as Linux lists them: ``0-15,32-47``."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1][1:] = [cpu]
        else:
            runs.append([cpu])
    return ",".join("-".join(map(str, run)) for run in runs)


def bits(words: Any) -> list[int]:
    """Return the numbers of the bits that are set in an array of 64-bit words; none where there is no array."""
    if words is None:
        return []
    return [64 * position + bit for position, word in enumerate(words) if word for bit in range(64) if word >> bit & 1]
