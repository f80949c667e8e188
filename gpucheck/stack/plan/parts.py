"""The components of a plan, the roles that apply them, and the module stream of the driver."""

from collections.abc import Iterable
from typing import Any

from gpucheck.knowledge.packages import packages
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.components import BY_NAME, COMPONENTS
from gpucheck.stack.components.base import PlanInput
from gpucheck.stack.stack_set import StackSet


def planned_components(plan: PlanInput) -> dict[str, dict[str, Any]]:
    """Packages, holds and more by component; a component can be planned with another. Raises PlanGap.

    Those that are not optional are always there, without packages if they are not wanted.
    """
    found: dict[str, dict[str, Any]] = {}
    for row in COMPONENTS:
        part = row.packages(plan)
        if part is not None:
            both = found.get(row.part, {"packages": [], "holds": []})
            found[row.part] = {**both, **part, **{key: [*both[key], *part[key]] for key in both}}
    return found


def roles(parts: Iterable[str]) -> tuple[str, ...]:
    """The roles in their order: what comes later needs what came before, and a reboot happens within the driver's.

    What follows the driver's version is installed with it, in one transaction.
    """
    return tuple(name for name in parts if BY_NAME[name].default is not None or BY_NAME[name].optional)


def module_stream(system: OperatingSystem, stack: StackSet) -> dict[str, str] | None:
    """The stream of NVIDIA's dnf module that the driver comes from, None where the system has no streams."""
    streams = packages().module_streams
    if system.family != "redhat" or int(system.version) not in streams.el_majors:
        return None
    kind = "open" if stack.driver.kernel_module == "open" else "dkms"
    return {"module": streams.module, "stream": f"{stack.driver.branch}-{kind}"}
