"""Checked copies for every transfer test: what is sent, poison on the destination, and how the arrived is damaged."""

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any, NamedTuple

from gpucheck.model.smoke import Copy
from gpucheck.train.progress import RankReport
from gpucheck.train.session import Rank

SIZES = (1 << 10, 1 << 16, 1 << 20, 16 << 20)
POISON = 0x5A5A5A5A5A5A5A5A
FACTOR = 2654435761  # spreads neighbouring numbers over all bytes


class Moved(NamedTuple):
    """A copy that was made. arrived: what the host reads of the receiver, as an array.

    differs: what the receiver itself found. peers: whether peer access carried it, None within one device.
    """

    seconds: float
    arrived: Any
    differs: bool
    peers: bool | None


Move = Callable[[int, int, Any, int], Moved]
"""Gets source and target by place among the devices, the array to send, and its seed: number n is n * FACTOR + seed."""


def copy_and_report(rank: Rank, move: Move, more: str = "") -> RankReport:
    """Copy between every ordered pair of devices, in several sizes. more: added to the reason of the placement."""
    copies = tuple(_copies(rank, move))
    rank.progress.enter("report")
    return rank.reported("none", more, copies=copies)


def _copies(rank: Rank, move: Move) -> Iterator[Copy]:
    import numpy as np

    devices = [device.name for device in rank.described]
    names = [
        f"{name} buffer {chr(ord('a') + place)}" if devices.count(name) > 1 else name
        for place, name in enumerate(devices)
    ]
    for number, (source, target) in enumerate(permutations(range(len(names)), 2)):
        # Unique by place and by copy: what was sent before, or belongs elsewhere, cannot pass for what was sent now.
        for seed, size in enumerate(SIZES, 1 + number * len(SIZES)):
            rank.progress.enter("copy", seed)
            sent = np.arange(size // 8, dtype=np.int64) * FACTOR + seed
            moved = move(source, target, sent, seed)
            wrong, first, kind = damage(moved.arrived.tobytes(), sent.tobytes())
            if moved.differs and not wrong:
                wrong, first, kind = size, 0, "other"  # right for the host, wrong for the receiver: not the same memory
            yield Copy(
                source=names[source],
                target=names[target],
                bytes=size,
                gb_s=round(size / moved.seconds / 1e9, 3) if moved.seconds > 0 else None,
                wrong=wrong,
                first_wrong=first,
                damage=kind,
                checked_by=("the receiver", "the host"),
                path=None if moved.peers is None else "peer access" if moved.peers else "host memory",
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
