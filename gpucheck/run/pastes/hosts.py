"""Which parts of pasted text are of which host, by the names that prompts, launchers, logs and jobs print."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpucheck.model.diagnosis.paste import Part


class NoSuchMachine(ValueError):
    """The requested host is in no input. As text it is one line that names those that are."""


class HostParts(NamedTuple):
    """The parts of one host. name: as the input prints it, None if nothing names the host."""

    name: str | None
    parts: list[Part]


def of_machine(parts: Sequence[Part], machine: str) -> HostParts:
    """Return the parts of the requested host; parts that name none belong to it. Raises NoSuchMachine."""
    name_of = _naming(parts)
    names = {short(name): name for part in parts if (name := name_of(part))}
    if short(machine) not in names:
        have = f"The inputs name {', '.join(names.values())}" if names else "The inputs name no machine"
        raise NoSuchMachine(f"no part of the input is of {machine}. {have}")
    chosen = [part for part in parts if (name := name_of(part)) is None or short(name) == short(machine)]
    return HostParts(names[short(machine)], chosen)


def by_host(parts: Sequence[Part]) -> list[HostParts]:
    """Return the parts of each host that is named, in order, then those that name none.

    With one name all parts are of that host. Else a part without a name is of the only host that its input names.
    """
    name_of = _naming(parts)
    names = {short(name): name for part in parts if (name := name_of(part))}
    if len(names) < 2:
        return [HostParts(next(iter(names.values()), None), list(parts))]
    of_source: dict[str, set[str]] = {}
    for part in parts:
        if name := name_of(part):
            of_source.setdefault(_source(part), set()).add(short(name))
    found: dict[str | None, list[Part]] = {name: [] for name in names}
    for part in parts:
        name = name_of(part)
        only = of_source.get(_source(part), set())
        key = short(name) if name else next(iter(only)) if len(only) == 1 else None
        found.setdefault(key, []).append(part)
    return [HostParts(names.get(key or ""), mine) for key, mine in found.items()]


def short(host: str) -> str:
    """A host's name without its domain; an address as it is."""
    return host.lower() if host[:1].isdigit() or ":" in host else host.lower().partition(".")[0]


def _naming(parts: Sequence[Part]) -> Callable[[Part], str | None]:
    """How a part names its host. A name that a job printed may be a container's: it only counts if no other does."""
    if any(part.machine for part in parts):
        return lambda part: part.machine
    jobs = {short(part.ran_on) for part in parts if part.ran_on}
    return (lambda part: part.ran_on) if len(jobs) > 1 else lambda _: None


def _source(part: Part) -> str:
    return part.ranges[0].source if part.ranges else ""
