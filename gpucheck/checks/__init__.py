"""Check a host: each module is one check and holds ``CHECK``, in a directory per subject; there is no list to maintain.

Modules that start with an underscore are shared.
"""

from importlib import import_module
from pkgutil import walk_packages

from gpucheck.model import Check


def all_checks() -> tuple[Check, ...]:
    """Return the CHECK of every module, ordered by name. Raises AttributeError if a module defines none."""
    found = (module for module in walk_packages(__path__, f"{__name__}.") if not module.ispkg)
    names = (module.name for module in found if not module.name.rpartition(".")[2].startswith("_"))
    return tuple(sorted((import_module(name).CHECK for name in names), key=lambda check: check.name))
