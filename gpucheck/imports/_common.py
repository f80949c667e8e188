"""What readers of several kinds need: bus ids as Linux writes them, GPUs by number, matrices by pair."""

import re
from collections.abc import Mapping
from typing import TypeVar

from gpucheck.imports._regex import regex

T = TypeVar("T")

BUS_ID = regex(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)


def bus_id(domain: str, bus: str, device: str, function: str = "0") -> str:
    """Return a PCI bus id (``0000:3b:00.0``) from its parts as hexadecimal numbers."""
    return f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function}"


def linux_bus_id(text: str) -> str | None:
    """Return a complete bus id in lower case with a domain of four digits, more only if needed; None for other text."""
    match = BUS_ID.fullmatch(text.strip())
    return bus_id(*match.groups()) if match else None


def in_order(found: Mapping[int, T]) -> tuple[T, ...]:
    """Return the values by number; empty unless the numbers are 0, 1, 2, ..."""
    return tuple(found[i] for i in range(len(found))) if set(found) == set(range(len(found))) else ()


def by_pair(found: Mapping[tuple[int, int], T], count: int) -> tuple[tuple[T | None, ...], ...]:
    """Return count x count cells, row = first of the pair; None where there is no value and on the diagonal."""
    return tuple(tuple(None if i == j else found.get((i, j)) for j in range(count)) for i in range(count))
