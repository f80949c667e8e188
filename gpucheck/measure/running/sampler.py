"""Read link state and clock event reasons repeatedly during copies: a few NVML calls a GPU, in one process of its own.

Run as ``python -m gpucheck.measure.running.sampler FD PARENT MOST BUS_ID...``: a JSON line for each GPU in each pass.
"""

import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from gpucheck.host.nvml.gauge import Gauge, LinkReading
from gpucheck.host.simulated import preload
from gpucheck.processes.child import Child
from gpucheck.processes.environment import python_module
from gpucheck.processes.exhausted import exhausted
from gpucheck.processes.lifeline import end_with_parent

PAUSE_S = 0.2
MOST = 10_000  # passes: half an hour
FIRST_S = 20.0  # for one reading; later ones are not waited for
BUSY = {"GPUCHECK_SIMULATOR_LOAD": "1"}
CHILD = python_module("gpucheck.measure.running.sampler")


class Sampler:
    """A context manager that collects readings while it is open. Without NVML there are none.

    Copies do not set the load of a simulated machine: the environment does, and one pass shows everything.
    """

    def __init__(self, bus_ids: Sequence[str], *, simulated: bool, command: Sequence[str] = CHILD) -> None:
        self._simulated = simulated
        self.readings: list[LinkReading] = []
        self._stopped = False
        self._child: Child | None = None
        self.rejected = ""  # the operating system's words, where it started no process or thread for the readings
        arguments = (str(os.getpid()), str(1 if simulated else MOST), *bus_ids)
        try:
            if bus_ids:
                self._child = Child(command, {**os.environ, **(BUSY if simulated else {})}, *arguments)
        except OSError as error:  # copies are measured without readings
            self.rejected = str(error)
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> "Sampler":  # noqa: PYI034 - Self needs Python 3.11
        try:
            self._thread.start()
        except RuntimeError as error:
            self.rejected = str(error)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._simulated and kind is None and self._thread.ident is not None:
            self._thread.join(2 * FIRST_S)
        self._stopped = True
        if self._child is not None:
            self._child.kill()

    def _listen(self) -> None:
        if self._child is None:
            return
        with suppress(TimeoutError):
            while (line := self._child.read_line(time.monotonic() + FIRST_S)) is not None:
                # A reading that ended after the copies may show idle links.
                if not self._stopped:
                    self.readings.append(msgspec.json.decode(line, type=LinkReading))
        last_line = self._child.how_it_ended().last_line
        self.rejected = last_line if exhausted(last_line) else self.rejected
        self._child.end()


def main(descriptor: int, parent_pid: int, most: int, bus_ids: Sequence[str]) -> None:
    """Read until the parent ends this process."""
    end_with_parent(parent_pid)
    preload()
    gauges = [gauge for gauge in map(Gauge.of, bus_ids) if gauge is not None]
    for number in range(most if gauges else 0):
        time.sleep(PAUSE_S if number else 0)
        for gauge in gauges:
            os.write(descriptor, msgspec.json.encode(gauge.link()) + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
