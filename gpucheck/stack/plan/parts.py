"""The components of a plan, the roles that apply them, and the sources that it needs: archive, module stream."""

from collections.abc import Iterable
from typing import Any

from gpucheck.knowledge.archives import Archive, ubuntu
from gpucheck.knowledge.packages import packages
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.components import BY_NAME, COMPONENTS
from gpucheck.stack.packages import PlanGap
from gpucheck.stack.rules.archive import SOURCE, archive_of
from gpucheck.stack.rules.ubuntu import UBUNTU, ubuntu_system
from gpucheck.stack.stack_set import StackSet
from gpucheck.stack.types import PlanInput


def planned_components(plan: PlanInput) -> dict[str, dict[str, Any]]:
    """Return packages, holds and more by component; a component can be planned with another. Raises PlanGap.

    Components that are not optional are always included, without packages if they are not requested.
    """
    found: dict[str, dict[str, Any]] = {}
    for row in COMPONENTS:
        part = row.packages(plan)
        if part is not None:
            both = found.get(row.part, {"packages": [], "holds": []})
            found[row.part] = {**both, **part, **{key: [*both[key], *part[key]] for key in both}}
    return found


def roles(parts: Iterable[str]) -> tuple[str, ...]:
    """Return the roles in their order: later ones depend on earlier ones, and the driver's role reboots.

    Components at the driver's version are installed with it, in one transaction.
    """
    return tuple(name for name in parts if BY_NAME[name].default is not None or BY_NAME[name].optional)


def module_stream(system: OperatingSystem, stack: StackSet) -> dict[str, str] | None:
    """Return the stream of NVIDIA's dnf module with the driver, None if the system has no streams."""
    streams = packages().module_streams
    if system.family != "redhat" or int(system.version) not in streams.el_majors:
        return None
    kind = "open" if stack.driver.kernel_module == "open" else "dkms"
    return {"module": streams.module, "stream": f"{stack.driver.branch}-{kind}"}


def archive_of_set(system: OperatingSystem, stack: StackSet) -> Archive | None:
    """Return the archive of the set, None for NVIDIA's repositories. Raises PlanGap for an edited lock."""
    archive = archive_of(system, stack)
    if archive is not None or stack.source != "debian":
        return archive
    raise PlanGap(f"the archive of {system.name} is not known", SOURCE, "source: nvidia in stack.yml")


def host_sources(system: OperatingSystem, stack: StackSet, archive: Archive | None) -> dict[str, Any] | None:
    """Return the package sources of the host that the plan needs: components of one suite and its updates, or None.

    distribution: whose archive it is, omitted for Debian.
    """
    if archive is not None:
        return {"suite": archive.suite, "components": list(archive.components)}
    row = ubuntu_system(system) if stack.source == UBUNTU else None
    if row is None:
        return None
    return {"suite": row.suite, "components": list(ubuntu().components), "distribution": UBUNTU}
