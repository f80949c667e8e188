"""What can be fuzzed: one decorated function in a module of ``targets/`` is one target; there is no list to keep."""

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Literal, NamedTuple

from tests.fuzz import targets

Format = Literal["text", "yaml", "json", "json.gz", "values", "arguments", "bytes"]
Function = Callable[[bytes], None]
Seeds = Callable[[], Sequence[bytes]]


class Target(NamedTuple):
    """One reader and what follows it.

    run: returns for every input, or raises what is a defect. seeds: real inputs. format: how they are mutated.
    rate: inputs a second on one core, measured; the slow test runs so many. attacks: run as they are.
    """

    name: str
    run: Function
    seeds: Seeds
    format: Format
    rate: int
    attacks: Seeds = tuple


_found: dict[str, Target] = {}


def target(
    *,
    seeds: Seeds,
    format: Format,  # noqa: A002 - the field's name
    rate: int,
    name: str = "",
    attacks: Seeds = tuple,
) -> Callable[[Function], Function]:
    """Make a target of a function, under the function's name unless another is given."""

    def decorate(run: Function) -> Function:
        called = name or run.__name__.replace("_", "-")
        if called in _found:
            raise ValueError(f"two targets are called {called}")
        _found[called] = Target(called, run, cache(seeds), format, rate, cache(attacks))
        return run

    return decorate


def all_targets() -> tuple[Target, ...]:
    """Every target, by name."""
    for module in iter_modules(targets.__path__):
        import_module(f"{targets.__name__}.{module.name}")
    return tuple(_found[name] for name in sorted(_found))


def chosen(names: Sequence[str]) -> tuple[Target, ...]:
    """The named targets, all without a name. A name may be the beginning of several. Raises LookupError."""
    everything = all_targets()
    for name in names:
        if not any(one.name.startswith(name) for one in everything):
            raise LookupError(f"no target is called {name}. There are: {', '.join(one.name for one in everything)}")
    exact = {one.name for one in everything} & {*names}
    starts = tuple(name for name in names if name not in exact)
    return tuple(
        one for one in everything if not names or one.name in exact or (starts and one.name.startswith(starts))
    )
