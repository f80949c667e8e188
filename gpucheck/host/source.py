"""Facts of the live host, read when a rule or a measurement needs them: each once, each with a deadline."""

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

import msgspec

from gpucheck.host import simulated
from gpucheck.host.live import NAMED, READERS, Place, libraries
from gpucheck.host.nvml.supervisor import NvmlChild
from gpucheck.model.facts import BY_NAME, Facts
from gpucheck.processes.deadline import StuckError, in_time

READ_S = 20.0
# After one read got stuck the next ones probably wait for the same thing: 30 of them must not take 30 deadlines.
AFTER_STUCK_S = 2.0


def live_source(*, isolated: bool, deadline_s: float, health: bool = True, begin: bool = False) -> "LiveSource":
    """This machine, or the simulated one that the environment names; arguments as in Place.

    begin: ask NVML at once, while the caller does other things.
    """
    child = NvmlChild(deadline_s, health=health) if begin and isolated else None
    machine = simulated.machine_directory()
    return LiveSource(Place(isolated=isolated, deadline_s=deadline_s, machine=machine, health=health, begun=child))


class LiveSource:
    """facts: of this host so far. errors: how the read of a need ended that has no answer. stuck: reads left behind.

    With an error is its traceback: each time that it is raised adds the place of that to the error itself.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.facts = Facts()
        self.errors: dict[str, tuple[Exception, TracebackType | None]] = {}
        self.stuck = 0

    def read(self, *needs: str) -> Facts:
        """Return the facts with these needs. Raises what the read of one raised, each time that it is needed."""
        for need in needs:
            if ":" not in need and self._left([need]):
                self._part(need)
        for kind in BY_NAME:
            left = self._left([need for need in dict.fromkeys(needs) if need.startswith(f"{kind}:")])
            if left:
                names = tuple(need.partition(":")[2] for need in left)
                self._read(left, partial(self._by_name, kind, names), READ_S)
        for need in needs:
            if need in self.errors:
                error, trace = self.errors[need]
                raise error.with_traceback(trace)
        return self.facts

    def _left(self, needs: list[str]) -> list[str]:
        return [need for need in self.facts.missing(needs) if need not in self.errors]

    def _part(self, need: str) -> None:
        reader = READERS[need]
        try:
            facts = self.read(*reader.after)
        except Exception as error:
            self._keep([need], error)
            return
        seconds = READ_S + self.place.nvml_s if reader.patient else READ_S
        self._read([need], lambda: {need: reader.read(self.place, facts)}, seconds)

    def _read(self, needs: list[str], call: Callable[[], dict[str, Any]], seconds: float) -> None:
        try:
            answers = in_time(f"reading {needs[0]}", call, AFTER_STUCK_S if self.stuck else seconds)
        except StuckError as error:
            self.stuck += 1
            self._keep(needs, error)
        except Exception as error:  # one broken reader must not lose all that the others read
            self._keep(needs, error)
        else:
            self.facts = msgspec.structs.replace(self.facts, **answers)

    def _keep(self, needs: list[str], error: Exception) -> None:
        self.errors.update(dict.fromkeys(needs, (error, error.__traceback__)))

    def _by_name(self, kind: str, names: tuple[str, ...]) -> dict[str, Any]:
        field = BY_NAME[kind]
        known = getattr(self.facts, field)
        if kind == "library":
            every = (*known, *names)
            return {field: every, "libraries": libraries(self.place, every)}
        found = NAMED[kind](self.place, names)
        return {field: None if found is None else {**known, **found}}
