"""Make a failing input shorter while it fails in the same way: pieces are left out, large ones first."""

import time
from collections.abc import Callable

PATIENCE_S = 3.0


def minimised(data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """The shortest input found within the time; ``data`` itself where nothing shorter fails."""
    until = time.monotonic() + PATIENCE_S
    for separator in (b"\n", b""):
        pieces = _pieces(data, separator)
        size = len(pieces) // 2
        while size and time.monotonic() < until:
            at = 0
            while at < len(pieces) and time.monotonic() < until:
                shorter = pieces[:at] + pieces[at + size :]
                if shorter and fails(separator.join(shorter)):
                    pieces = shorter
                else:
                    at += size
            size = size // 2
        data = separator.join(pieces)
    return data


def _pieces(data: bytes, separator: bytes) -> list[bytes]:
    return data.split(separator) if separator else [data[i : i + 1] for i in range(len(data))]
