"""One module here is one family of causes; there is no list to keep. A module holds ``RULE``."""

from importlib import import_module
from pkgutil import iter_modules

from gpucheck.diagnose._rule import Rule


def all_rules() -> tuple[Rule, ...]:
    """Every RULE here in the order they look. Raises AttributeError if a module defines none."""
    names = (m.name for m in iter_modules(__path__) if not m.name.startswith("_"))
    rules = (import_module(f"{__name__}.{name}").RULE for name in names)
    return tuple(sorted(rules, key=lambda rule: (rule.order, rule.name)))
