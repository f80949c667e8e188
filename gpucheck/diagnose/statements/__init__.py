"""What needs no weighing: registers, counters, denied access, and expected values. One module per subject.

A module holds ``state(case)``, which yields findings; there is no list to keep.
"""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from gpucheck.diagnose.statements._case import Case
from gpucheck.model.finding import Finding


def all_statements(case: Case) -> Iterator[Finding]:
    """Every statement about a machine, module by module."""
    for name in sorted(m.name for m in iter_modules(__path__) if not m.name.startswith("_")):
        yield from import_module(f"{__name__}.{name}").state(case)
