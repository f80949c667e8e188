"""Plan packages from the distribution's archive: the archive, and the sources of the host that it needs."""

from typing import Any

from gpucheck.knowledge.archives import Archive, archives
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.packages import PlanGap
from gpucheck.stack.rules.archive import SOURCE
from gpucheck.stack.stack_set import StackSet


def archive_of_set(system: OperatingSystem, stack: StackSet) -> Archive | None:
    """Return the archive of the set, None for NVIDIA's repositories. Raises PlanGap for an edited lock."""
    if not stack.source:
        return None
    for archive in archives():
        if archive.os == system.id:
            return archive
    raise PlanGap(f"the archive of {system.name} is not known", SOURCE, "source: nvidia in stack.yml")


def host_sources(archive: Archive) -> dict[str, Any]:
    """Return the package sources of the host that the plan needs: components of one suite and its updates."""
    return {"suite": archive.suite, "components": list(archive.components)}
