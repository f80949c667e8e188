"""The components of the stack, one module each; new modules are discovered."""

import importlib
import pkgutil

from gpucheck.stack.components.base import Component
from gpucheck.stack.types import StackSet

HELPERS = ("base",)


def _found() -> tuple[Component, ...]:
    names = [module.name for module in pkgutil.iter_modules(__path__) if module.name not in HELPERS]
    rows: list[Component] = [importlib.import_module(f"{__name__}.{name}").COMPONENT for name in names]
    return tuple(sorted(rows, key=lambda row: row.place))


COMPONENTS = _found()
BY_NAME = {row.name: row for row in COMPONENTS}
BY_TURN = tuple(sorted(COMPONENTS, key=lambda row: row.turn))
# Keys of stack.yml that name a version.
VERSIONED = tuple(row for row in COMPONENTS if row.default is not None and not row.choices)


def exact_spec(stack: StackSet) -> dict[str, str]:
    """Return the values of the specification that name exactly this set."""
    # A stated build leaves no preference, and a system that was chosen before is allowed.
    settled = {"source": stack.source or "auto", "torch_origin": "any", "end_of_life_os": "allow"}
    return {**{row.name: row.exact(stack) for row in COMPONENTS if row.default is not None}, **settled}
