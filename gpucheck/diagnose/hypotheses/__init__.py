"""One module here is one hypothesis; there is no list to keep. A module holds ``HYPOTHESIS``."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from gpucheck.diagnose.instance import Instance
from gpucheck.diagnose.machine import Machine


@dataclass(frozen=True)
class Hypothesis:
    """One family of causes.

    causes: keys of gpucheck/knowledge/causes.yml. instances: the ways in which it may be true on a machine, each with
    what it changes and its prior probability; none where it is not possible. All other fields are for people.
    """

    name: str
    causes: tuple[str, ...]
    title: str
    possible_when: str
    predicts: str
    prior: str
    never_explains: str
    sources: tuple[str, ...]
    instances: Callable[[Machine], Iterator[Instance]]
    cases: tuple[str, ...] = ()


@cache
def all_hypotheses() -> tuple[Hypothesis, ...]:
    """Every HYPOTHESIS here, by name. Raises AttributeError if a module defines none."""
    names = (m.name for m in iter_modules(__path__) if not m.name.startswith("_"))
    return tuple(import_module(f"{__name__}.{name}").HYPOTHESIS for name in sorted(names))
