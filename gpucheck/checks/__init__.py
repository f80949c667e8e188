"""Check a host: each module is one check and holds ``CHECK``; there is no list to maintain.

Modules that start with an underscore are shared.
"""

from importlib import import_module
from pkgutil import iter_modules

from gpucheck.model import AnyCheck


def all_checks() -> tuple[AnyCheck, ...]:
    """Every CHECK here, ordered by name. Raises AttributeError if a module defines none."""
    names = (m.name for m in iter_modules(__path__) if not m.name.startswith("_"))
    modules = (import_module(f"{__name__}.{name}") for name in names)
    return tuple(sorted((m.CHECK for m in modules), key=lambda check: check.name))
