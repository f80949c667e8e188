"""One module here is one hypothesis; there is no list to keep. A module holds ``HYPOTHESIS``."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from gpucheck.diagnose.hypotheses._hypothesis import Hypothesis

__all__ = ["Hypothesis", "all_hypotheses"]


@cache
def all_hypotheses() -> tuple[Hypothesis, ...]:
    """Every HYPOTHESIS here, by name. Raises AttributeError if a module defines none."""
    names = (m.name for m in iter_modules(__path__) if not m.name.startswith("_"))
    return tuple(import_module(f"{__name__}.{name}").HYPOTHESIS for name in sorted(names))
