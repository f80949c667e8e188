"""What can be wrong with a simulated machine. One module here is one fault; there is no list to keep.

A fault is written ``NAME`` or ``NAME:key=value,key=value``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules
from types import UnionType
from typing import TypeAlias

from gpucheck.simulator.data import unknown
from gpucheck.simulator.machine import Machine

Parameter: TypeAlias = type[int] | type[str] | UnionType | int | str


@dataclass(frozen=True)
class Fault:
    """apply changes the machine; it gets every parameter by name.

    parameters: name -> type for those that must be given, name -> default for those that need not; a type that may be
    None is one that need not and has no default.
    """

    name: str
    summary: str
    apply: Callable[..., None]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    @property
    def usage(self) -> str:
        """How it is written: ``pcie-width:gpu=N,width=N[,when=always]``, with the defaults of what may be left out."""
        needed = {key: kind for key, kind in self.parameters.items() if isinstance(kind, type)}
        words = [f"{key}={'N' if kind is int else 'NAME'}" for key, kind in needed.items()]
        more = [f"{key}={_shown(default)}" for key, default in self.parameters.items() if key not in needed]
        optional = f"[{',' if words else ':'}{','.join(more)}]" if more else ""
        return self.name + (":" if words else "") + ",".join(words) + optional


def all_faults() -> tuple[Fault, ...]:
    """Every FAULT here, ordered by name."""
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    return tuple(sorted((module.FAULT for module in modules), key=lambda fault: fault.name))


def apply(machine: Machine) -> None:
    """Break the machine by its faults, in order.

    Raises LookupError for an unknown fault, ValueError for a wrong parameter or a fault that the machine cannot have.
    """
    for words in machine.faults:
        fault, values = parse(words)
        try:
            fault.apply(machine, **values)
        except ValueError as error:
            raise ValueError(f"fault {words}: {error.args[0]}") from error


def parse(words: str) -> tuple[Fault, dict[str, int | str | None]]:
    """The fault and its parameters. Raises as ``apply`` does."""
    name, colon, rest = words.partition(":")
    faults = {fault.name: fault for fault in all_faults()}
    if name not in faults:
        raise LookupError(unknown("fault", name, tuple(faults)))
    fault = faults[name]
    given: dict[str, int | str | None] = {}
    for pair in rest.split(",") if colon else ():
        key, _, value = pair.partition("=")
        if key not in fault.parameters or key in given or not value:
            near = get_close_matches(key, set(fault.parameters) - set(given), n=1)
            guess = f" Did you mean {near[0]}?" if near and near[0] != key else ""
            raise ValueError(f"fault {words}: invalid parameter {pair!r}.{guess} Syntax: {fault.usage}")
        given[key] = _value(words, key, value, _kind(fault.parameters[key]))
    missing = [key for key, default in fault.parameters.items() if isinstance(default, type) and key not in given]
    if missing:
        raise ValueError(f"fault {words}: {missing[0]} is missing. Syntax: {fault.usage}")
    defaults = {
        key: None if isinstance(default, UnionType) else default
        for key, default in fault.parameters.items()
        if not isinstance(default, type)
    }
    return fault, defaults | given


def _kind(parameter: Parameter) -> type[int] | type[str]:
    return int if parameter in (int, int | None) or isinstance(parameter, int) else str


def _shown(default: Parameter) -> str:
    """A default as the usage shows it; what kind of word is wanted where there is none."""
    if isinstance(default, UnionType) or default == "":
        return "N" if _kind(default) is int else "NAME"
    return str(default)


def _value(words: str, key: str, value: str, kind: type) -> int | str:
    if kind is str:
        return value
    if not (value.isascii() and value.isdigit()):
        raise ValueError(f"fault {words}: {key} is a number of 0 or more, not {value!r}")
    return int(value)
