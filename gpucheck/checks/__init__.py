"""Check a host: each module holds one check as ``CHECK``, or those of one subject as ``CHECKS``; there is no list.

Modules that start with an underscore are shared.
"""

from importlib import import_module
from pkgutil import walk_packages

from gpucheck.model import Check


def all_checks() -> tuple[Check, ...]:
    """Return the checks of every module, ordered by name. Raises AttributeError if a module defines none."""
    found = (module for module in walk_packages(__path__, f"{__name__}.") if not module.ispkg)
    names = (module.name for module in found if not module.name.rpartition(".")[2].startswith("_"))
    modules = (import_module(name) for name in names)
    every = (check for module in modules for check in getattr(module, "CHECKS", None) or (module.CHECK,))
    return tuple(sorted(every, key=lambda check: check.name))


def checks_of(tag: str) -> tuple[Check, ...]:
    """Return the checks with a tag: ``quick`` of what is read; of what a step measured, its name."""
    return tuple(check for check in all_checks() if tag in check.tags)
