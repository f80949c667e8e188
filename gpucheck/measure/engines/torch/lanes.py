"""How torch queues the copies of each method, on streams that no other copy of the same step uses.

ce-write is ``dst.copy_(src)``: equal layouts make torch queue one driver copy on the source's stream, direct where peer
access is granted; torch synchronizes each copy with the streams of both devices, which makes small copies
slower. sm-write copies rows that are not contiguous, for which torch uses a kernel on the source.
"""

from typing import Any

from gpucheck.measure.engines.cuda.queue import Lane
from gpucheck.measure.engines.pattern import WORD

ROW, BODY = 128, 127  # words: torch copies rows with a gap after the body by a kernel
STAGE_BYTES = 4 << 20


class Streams:
    """Streams by device, in the order in which a step needs them.

    torch creates 32 per device and then reuses them, and two copies on one stream would wait for each other. Every
    step therefore uses the same few streams, and the gate is created before them.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._made: dict[Any, list[Any]] = {}
        self._taken: dict[Any, int] = {}
        self._stages: list[list[Any]] = []
        self._staged = 0

    def begin(self) -> None:
        """Start a new step, after all copies of the previous one."""
        self._taken.clear()
        self._staged = 0

    def take(self, device: Any) -> Any:
        """Return a stream of the device that no other copy of this step uses."""
        number = self._taken.get(device, 0)
        self._taken[device] = number + 1
        made = self._made.setdefault(device, [])
        if number == len(made):
            made.append(self._torch.cuda.Stream(device))
        return made[number]

    def stages(self) -> list[Any]:
        """Return two pinned buffers that no other copy of this step uses."""
        if self._staged == len(self._stages):
            words = STAGE_BYTES // WORD
            self._stages.append([self._torch.empty(words, dtype=self._torch.int64, pin_memory=True) for _ in range(2)])
        self._staged += 1
        return self._stages[self._staged - 1]


def rows(part: Any) -> Any:
    """Return a buffer as rows of ROW words."""
    return part[: len(part) // ROW * ROW].view(-1, ROW)


def plain(torch: Any, source: Any, target: Any, near: Any, far: Any) -> Lane:
    """Return a lane of torch's copy. near: its stream; far: the stream of the other device, which torch makes wait."""

    def copy() -> None:
        with torch.cuda.stream(far), torch.cuda.stream(near):
            target.copy_(source, non_blocking=True)

    return Lane(near, near, copy)


def staged(torch: Any, source: Any, target: Any, near: Any, far: Any, stages: list[Any]) -> Lane:
    """Return a lane that copies chunks through two pinned buffers, with both transfers overlapped."""
    words = STAGE_BYTES // WORD
    free = [torch.cuda.Event() for _ in stages]
    full = [torch.cuda.Event() for _ in stages]

    def copy() -> None:
        for number, start in enumerate(range(0, len(source), words)):
            side, count = number % 2, min(words, len(source) - start)
            stage = stages[side][:count]
            with torch.cuda.stream(near):
                near.wait_event(free[side])
                stage.copy_(source[start : start + count], non_blocking=True)
                full[side].record(near)
            with torch.cuda.stream(far):
                far.wait_event(full[side])
                target[start : start + count].copy_(stage, non_blocking=True)
                free[side].record(far)

    return Lane(near, far, copy)
