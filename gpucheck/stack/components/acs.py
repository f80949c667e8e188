"""The service that clears ACS at boot, if ``tuning.acs`` is off: a component of the plan without a version."""

from typing import Any

from gpucheck.stack.components.base import Component
from gpucheck.stack.settings import acs_component
from gpucheck.stack.types import PlanInput, StackSet


class Acs(Component):
    """Planned with ``tuning``, removed with it."""

    name = part = "acs"
    place = 110
    optional = True

    def fields(self, chosen: Any) -> dict[str, Any]:
        return {}

    def label(self, stack: StackSet) -> None:
        """Return None: it has no line in the text of a set."""

    def packages(self, plan: PlanInput) -> dict[str, Any] | None:
        return acs_component() if plan.spec.tuning.acs == "off" else None


COMPONENT = Acs()
