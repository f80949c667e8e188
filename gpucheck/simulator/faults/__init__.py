"""What can be wrong with a simulated machine. One function below ``fault`` is one fault; there is no list to keep.

A fault is written ``NAME`` or ``NAME:key=value,key=value``.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from pkgutil import iter_modules

import msgspec

from gpucheck.printable import meant
from gpucheck.simulator.data import HERE, read, unknown
from gpucheck.simulator.machine import Machine

RANKS = 2
Apply = Callable[..., None]


def break_training(machine: Machine, fault: str, rank: int, **parameters: int) -> None:
    """Have a rank of the training test misbehave. Raises ValueError for a rank that it does not have."""
    if rank >= RANKS:
        raise ValueError(f"rank={rank}: the training test has ranks 0 to {RANKS - 1}")
    machine.surround("training", fault=fault, rank=rank, **parameters)


def one_of_the_first_steps(step: int) -> int:
    """A step that every training makes. Raises ValueError for another."""
    if not 1 <= step <= 10:
        raise ValueError(f"step={step}: choose one of 1 to 10, which every training makes")
    return step


@dataclass(frozen=True)
class Fault:
    """apply changes the machine. What it takes after the machine are the fault's parameters: numbers and texts."""

    name: str
    summary: str
    apply: Apply

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters by name; those with a default are optional."""
        _, *own = signature(self.apply).parameters.values()
        return {parameter.name: parameter for parameter in own}

    @property
    def usage(self) -> str:
        """The syntax: ``pcie-width:gpu=N,width=N[,when=always]``, with the defaults of optional parameters."""
        parameters = self.parameters.values()
        needed = [f"{one.name}={_shown(one)}" for one in parameters if one.default is one.empty]
        more = [f"{one.name}={_shown(one)}" for one in parameters if one.default is not one.empty]
        optional = f"[{',' if needed else ':'}{','.join(more)}]" if more else ""
        return self.name + (":" if needed else "") + ",".join(needed) + optional


def fault(summary: str) -> Callable[[Apply], Fault]:
    """Make a fault of a function, under its name with hyphens: ``gpu_lost`` is gpu-lost."""
    return lambda apply: Fault(apply.__name__.replace("_", "-"), summary, apply)


def all_faults() -> tuple[Fault, ...]:
    """Every fault of the modules here, ordered by name."""
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    found = (value for module in modules for value in vars(module).values() if isinstance(value, Fault))
    return tuple(sorted(found, key=lambda one: one.name))


def apply(machine: Machine) -> None:
    """Break the machine by its faults, in order.

    Raises LookupError for an unknown fault, ValueError for a wrong parameter or a fault that the machine cannot have.
    """
    for text in machine.faults:
        fault, given = _parse(text)
        try:
            fault.apply(machine, **given)
        except ValueError as error:
            raise ValueError(f"fault {text}: {error.args[0]}") from error


def check_choice(parameter: str, value: str, known: Iterable[str]) -> None:
    """Raise ValueError for a value of a parameter that is not among the known ones."""
    if value not in known:
        raise ValueError(f"{parameter}={value}: choose one of {', '.join(known)}")


def lost(percent: int) -> int:
    """The percent of a rate that is lost. Raises ValueError for all of it or more."""
    if not 0 < percent < 100:
        raise ValueError(f"percent={percent}: choose 1 to 99, the part of the rate that is lost")
    return percent


def _parse(text: str) -> tuple[Fault, dict[str, int | str]]:
    """The fault and the parameters that are given. Raises as ``apply`` does."""
    name, colon, rest = text.partition(":")
    faults = {fault.name: fault for fault in all_faults()}
    if name not in faults:
        raise LookupError(unknown("fault", name, tuple(faults)))
    fault = faults[name]
    parameters = fault.parameters
    given: dict[str, int | str] = {}
    for pair in rest.split(",") if colon else ():
        key, _, value = pair.partition("=")
        if key not in parameters or key in given or not value:
            guess = "" if key in parameters else meant(key, set(parameters) - set(given))
            raise ValueError(f"fault {text}: invalid parameter {pair!r}.{guess} Syntax: {fault.usage}")
        if _is_number(parameters[key]) and not (value.isascii() and value.isdigit()):
            raise ValueError(f"fault {text}: {key} is a number of 0 or more, not {value!r}")
        given[key] = int(value) if _is_number(parameters[key]) else value
    needed = (key for key, parameter in parameters.items() if parameter.default is parameter.empty)
    missing = [key for key in needed if key not in given]
    if missing:
        raise ValueError(f"fault {text}: {missing[0]} is missing. Syntax: {fault.usage}")
    return fault, given


def _is_number(parameter: Parameter) -> bool:
    return parameter.annotation in (int, int | None)


def _shown(parameter: Parameter) -> str:
    """The default of a parameter, else the kind of its value."""
    if parameter.default in (parameter.empty, None, ""):
        return "N" if _is_number(parameter) else "NAME"
    return str(parameter.default)


PID = "pid=48213, name=python3"


class Texts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What follows a code, by code."""

    xid: dict[int, str]
    sxid: dict[int, str]


@cache
def texts() -> Texts:
    return read(HERE / "xids.yml", Texts)


def xid_line(bus_id: str, code: int) -> str:
    """``NVRM: Xid (PCI:0000:19:00): 79, ...``. Raises ValueError for a code that has no text."""
    return f"NVRM: Xid (PCI:{bus_id.rpartition('.')[0]}): {code}, {_text(texts().xid, code)}"


def sxid_line(switch: int, bus_id: str, code: int) -> str:
    """``nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, ...``. Raises ValueError for a code that has no text."""
    return f"nvidia-nvswitch{switch}: SXid (PCI:{bus_id}): {code}, {_text(texts().sxid, code)}"


def _text(table: dict[int, str], code: int) -> str:
    if code not in table:
        raise ValueError(f"code={code}: there are {', '.join(map(str, table))}")
    return table[code].replace("{pid}", PID)
