"""Plan packages from the distribution's archive: the archive, and the sources of the host that it needs."""

from typing import Any

from gpucheck.knowledge.archives import Archive, ubuntu
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.packages import PlanGap
from gpucheck.stack.rules.archive import SOURCE, archive_of
from gpucheck.stack.rules.ubuntu import UBUNTU, ubuntu_system
from gpucheck.stack.stack_set import StackSet


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
