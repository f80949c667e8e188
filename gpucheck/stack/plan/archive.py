"""The plan with packages of the distribution's own archive: which archive, and what of the host's sources it needs."""

from typing import Any

from gpucheck.knowledge.archives import Archive, archives, ubuntu
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.packages import PlanGap
from gpucheck.stack.rules.archive import SOURCE
from gpucheck.stack.rules.ubuntu import UBUNTU, ubuntu_system
from gpucheck.stack.stack_set import StackSet


def archive_of_set(system: OperatingSystem, stack: StackSet) -> Archive | None:
    """The archive that the set comes from, None for NVIDIA's repositories. Raises PlanGap for an edited lock."""
    if stack.source != "debian":
        return None
    for archive in archives():
        if archive.os == system.id:
            return archive
    raise PlanGap(f"the archive of {system.name} is not known", SOURCE, "source: nvidia in stack.yml")


def host_sources(system: OperatingSystem, stack: StackSet, archive: Archive | None) -> dict[str, Any] | None:
    """What of the host's own package sources the plan needs: components of one suite and its updates; None: nothing.

    distribution: whose archive, left out where that is Debian.
    """
    if archive is not None:
        return {"suite": archive.suite, "components": list(archive.components)}
    row = ubuntu_system(system) if stack.source == UBUNTU else None
    if row is None:
        return None
    return {"suite": row.suite, "components": list(ubuntu().components), "distribution": UBUNTU}
