"""Facts of a host, read when a rule or a measurement needs them: each once, each with a deadline."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from sysconfig import get_path
from typing import Any

import msgspec

from gpucheck.model.facts import BY_NAME, Facts
from gpucheck.model.host import Host, NotRecorded
from gpucheck.processes.deadline import StuckError, in_time

READ_S = 20.0
# After one read got stuck the next ones probably wait for the same thing: 30 of them must not take 30 deadlines.
AFTER_STUCK_S = 2.0


class HostSource:
    """facts: of this host so far. errors: how the read of a need ended that has no answer. stuck: reads left behind."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.facts = Facts()
        self.errors: dict[str, Exception] = {}
        self.stuck = 0

    def read(self, *needs: str) -> Facts:
        """Return the facts with these needs. Raises what the read of one raised, each time that it is needed."""
        left = [need for need in self.facts.missing(needs) if need not in self.errors]
        for need in left:
            if ":" not in need:
                self._read([need], partial(self._part, need))
        for kind in BY_NAME:
            names = [need.partition(":")[2] for need in left if need.startswith(f"{kind}:")]
            if names and not self._read([f"{kind}:{name}" for name in names], partial(self._by_name, kind, names)):
                for name in names if len(names) > 1 else ():
                    self._read([f"{kind}:{name}"], partial(self._by_name, kind, [name]))
        for need in needs:
            if need in self.errors:
                raise self.errors[need]
        return self.facts

    def _read(self, needs: list[str], call: Callable[[], dict[str, Any]]) -> bool:
        """Add what the call answers, or keep how it ended. Return False where names are to be read one by one."""
        seconds = READ_S + float(getattr(self.host, "patience_s", 0.0))
        try:
            answers = in_time(f"reading {needs[0]}", call, min(AFTER_STUCK_S, seconds) if self.stuck else seconds)
        except NotRecorded as error:
            if len(needs) > 1:
                return False
            self.errors[needs[0]] = error
        except StuckError as error:
            self.stuck += 1
            self.errors.update(dict.fromkeys(needs, error))
        except Exception as error:  # one broken reader must not lose all that the others read
            self.errors.update(dict.fromkeys(needs, error))
        else:
            self.facts = msgspec.structs.replace(self.facts, **answers)
        return True

    def _part(self, name: str) -> dict[str, Any]:
        return {name: getattr(self.host, name)()}

    def _by_name(self, kind: str, names: list[str]) -> dict[str, Any]:
        host, field = self.host, BY_NAME[kind]
        known = getattr(self.facts, field)
        if kind == "package":
            found = host.packages(names)
            installed = {package.name: package for package in found or ()}
            return {field: None if found is None else {**known, **{name: installed.get(name) for name in names}}}
        if kind == "library":
            every = (*known, *names)
            return {field: every, "libraries": host.loader_libraries(every)}
        if kind in ("text", "folder"):
            query: Callable[[str], Any] = host.read_text if kind == "text" else host.list_names
            return {field: {**known, **{name: query(real_path(name)) for name in names}}}
        answer = host.python_packages(names) if kind == "python" else host.services(names)
        return {field: {**known, **answer}}


def real_path(path: str) -> str:
    """Return the path of this interpreter and user for one that begins with ``{purelib}`` or ``{home}``."""
    return path.replace("{purelib}", get_path("purelib"), 1).replace("{home}", str(Path.home()), 1)
