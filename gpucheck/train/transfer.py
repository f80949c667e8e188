"""Plan of copies, poison on the destination and corruption type, for every transfer test."""

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations

from gpucheck.model.smoke import Copy
from gpucheck.train.progress import Progress

SIZES = (1 << 10, 1 << 16, 1 << 20, 16 << 20)
POISON = 0x5A5A5A5A5A5A5A5A
FACTOR = 2654435761  # spreads neighbouring numbers over all bytes


def copies(
    progress: Progress, devices: Sequence[str], copy: Callable[[tuple[int, int], tuple[str, str], int, int], Copy]
) -> Iterator[Copy]:
    """Make every copy. copy: gets source and target by place among the devices and by name, bytes, a seed."""
    names = _names(devices)
    for number, (source, target) in enumerate(permutations(range(len(devices)), 2)):
        for count, size in enumerate(SIZES, 1 + number * len(SIZES)):
            progress.enter("copy", count)
            yield copy((source, target), (names[source], names[target]), size, count)


def checked(
    names: tuple[str, str], seconds: float, arrived: bytes, sent: bytes, *, differs: bool, peers: bool | None = None
) -> Copy:
    """A copy from what was sent and what the host read of the receiver.

    differs: what the receiver itself found. peers: whether peer access carried it, None within one device.
    """
    wrong, first, kind = damage(arrived, sent)
    if differs and not wrong:
        wrong, first, kind = len(sent), 0, "other"  # right for the host, wrong for the receiver: not the same memory
    return Copy(
        source=names[0],
        target=names[1],
        bytes=len(sent),
        gb_s=round(len(sent) / seconds / 1e9, 3) if seconds > 0 else None,
        wrong=wrong,
        first_wrong=first,
        damage=kind,
        checked_by=("the receiver", "the host"),
        path=None if peers is None else "peer access" if peers else "host memory",
    )


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


def _names(devices: Sequence[str]) -> list[str]:
    return [
        f"{name} buffer {chr(ord('a') + place)}" if devices.count(name) > 1 else name
        for place, name in enumerate(devices)
    ]
