"""Read NVML repeatedly during copies, in a thread of the parent and a separate child per reading."""

import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from gpucheck.model import NvmlFailure, NvmlReading

PAUSE_S = 0.2
JOIN_S = 5.0
MOST = 200


class Sampler:
    """A context manager that collects readings while it is open. Failed reads are ignored.

    read: None without NVML; ``known`` is then the only reading.
    """

    def __init__(self, read: Callable[[], NvmlReading | NvmlFailure] | None, known: NvmlReading | None = None) -> None:
        self._read = read
        self._stop = threading.Event()
        self._readings = [known] if known is not None else []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Sampler":  # noqa: PYI034 - Self needs Python 3.11
        with suppress(RuntimeError):  # no thread left for this user: copies are measured without readings
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()

    def readings(self) -> tuple[NvmlReading, ...]:
        """Return the readings. Waits briefly for one that began before the end."""
        if self._thread.ident is not None:
            self._thread.join(JOIN_S)
        return tuple(self._readings)

    def _run(self) -> None:
        while self._read is not None and not self._stop.is_set() and len(self._readings) < MOST:
            answer = self._read()
            # A reading that ended after the copies may show idle links.
            if isinstance(answer, NvmlReading) and not self._stop.is_set():
                self._readings.append(answer)
            self._stop.wait(PAUSE_S)
