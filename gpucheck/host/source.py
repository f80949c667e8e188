"""Facts of the live host, read when a rule or a measurement needs them: each once, each with a deadline."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from sysconfig import get_path
from typing import Any

import msgspec

from gpucheck.host.live import LiveHost
from gpucheck.model.facts import BY_NAME, Facts, Gap
from gpucheck.processes.deadline import StuckError, in_time
from gpucheck.processes.exhausted import exhausted

READ_S = 20.0
# After one read got stuck the next ones probably wait for the same thing: 30 of them must not take 30 deadlines.
AFTER_STUCK_S = 2.0


class LiveSource:
    """The facts of this machine so far. stuck: how many reads were left behind."""

    def __init__(self, host: LiveHost) -> None:
        self.host = host
        self.facts = Facts()
        self.stuck = 0

    def read(self, *needs: str) -> Facts:
        """Return the facts with these needs: what has no answer in time is a gap."""
        left = [need for need in self.facts.missing(needs) if need not in self.facts.gaps]
        parts = [need for need in left if ":" not in need]
        for need in parts:
            self._try(need, [need], partial(self._part, need))
        for kind, field in BY_NAME.items():
            mine = [need for need in left if need.startswith(f"{kind}:")]
            if mine:
                names = [need.partition(":")[2] for need in mine]
                self._try(mine[0], mine, partial(self._by_name, kind, field, names))
        return self.facts

    def _try(self, what: str, needs: list[str], call: Callable[[], dict[str, Any]]) -> None:
        """Add what the call answers, or the gap for these needs."""
        seconds = READ_S + (self.host.patience_s if what in ("nvml", "device_files") else 0.0)
        if self.stuck:
            seconds = min(AFTER_STUCK_S, seconds)
        try:
            answers = in_time(f"reading {what}", call, seconds)
        except StuckError as error:
            self.stuck += 1
            gap = Gap(error=str(error), place=error.stack, seconds=error.seconds)
        except Exception as error:  # one broken reader must not lose all that the others read
            named = f": {error.filename}" if isinstance(error, OSError) and error.filename else ""
            gap = Gap(error=f"{type(error).__name__}: {error}{named}", place=_place(error), resources=exhausted(error))
        else:
            self.facts = msgspec.structs.replace(self.facts, **answers)
            return
        gaps = {**self.facts.gaps, **dict.fromkeys(needs, gap)}
        self.facts = msgspec.structs.replace(self.facts, gaps=gaps)

    def _part(self, name: str) -> dict[str, Any]:
        return {name: getattr(self.host, name)()}

    def _by_name(self, kind: str, field: str, names: list[str]) -> dict[str, Any]:
        host, known = self.host, getattr(self.facts, field)
        if kind == "package":
            found = host.packages(names)
            installed = {package.name: package for package in found or ()}
            return {field: None if found is None else {**known, **{name: installed.get(name) for name in names}}}
        if kind == "library":
            every = (*known, *names)
            return {field: every, "libraries": host.loader_libraries(every)}
        if kind in ("text", "folder"):
            query = host.read_text if kind == "text" else host.list_names
            return {field: {**known, **{name: query(real_path(name)) for name in names}}}
        query_all = host.python_packages if kind == "python" else host.services
        return {field: {**known, **query_all(names)}}


def real_path(path: str) -> str:
    """Return the path of this interpreter and user for one that begins with ``{purelib}`` or ``{home}``."""
    return path.replace("{purelib}", get_path("purelib"), 1).replace("{home}", str(Path.home()), 1)


def _place(error: Exception) -> tuple[str, ...]:
    found: list[str] = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        found.append(f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}")
        trace = trace.tb_next
    return tuple(found)
