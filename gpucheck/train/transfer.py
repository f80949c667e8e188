"""What every transfer test shares: sizes, the poison on the destination, and how damage is told. Pure."""

from collections.abc import Sequence

SIZES = (1 << 10, 1 << 16, 1 << 20, 16 << 20)
POISON = 0x5A5A5A5A5A5A5A5A


def damage(arrived: bytes, sent: bytes) -> tuple[int, int | None, str]:
    """Bytes that differ, the first of them, and how: ``none untouched zeros other``. numpy is imported inside."""
    if arrived == sent:
        return 0, None, "none"
    import numpy as np

    there, here = np.frombuffer(arrived, dtype=np.uint8), np.frombuffer(sent, dtype=np.uint8)
    wrong = np.flatnonzero(there != here)
    at_fault = there[wrong]
    kind = "untouched" if (at_fault == POISON & 0xFF).all() else "zeros" if not at_fault.any() else "other"
    return int(wrong.size), int(wrong[0]), kind


def names_of(devices: Sequence[str]) -> list[str]:
    """The devices' names; equal ones are told apart as buffers: ``cpu buffer a``."""
    return [
        f"{name} buffer {chr(ord('a') + place)}" if devices.count(name) > 1 else name
        for place, name in enumerate(devices)
    ]
