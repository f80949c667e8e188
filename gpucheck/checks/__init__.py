"""One module here is one check; there is no list to keep. Modules that start with an underscore are shared parts."""

from importlib import import_module
from pkgutil import iter_modules

from gpucheck.model import AnyCheck


def all_checks() -> tuple[AnyCheck, ...]:
    """Every CHECK here, ordered by name. Raises AttributeError if a module defines none."""
    names = (m.name for m in iter_modules(__path__) if not m.name.startswith("_"))
    modules = (import_module(f"{__name__}.{name}") for name in names)
    return tuple(sorted((m.CHECK for m in modules), key=lambda check: check.name))
