"""The plan where packages come from the distribution's own archive: their names, and the components a host needs."""

from typing import Any

from gpucheck.knowledge.archives import Archive, archives
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.packages import Component, PlanGap, component, container_toolkit, package
from gpucheck.stack.types import Reason, StackSet

SOURCE = "debian-archive"


def archive_of_set(system: OperatingSystem, stack: StackSet) -> Archive | None:
    """The archive that the set comes from, None for NVIDIA's repositories. Raises PlanGap for an edited lock."""
    if not stack.source:
        return None
    for archive in archives():
        if archive.os == system.id:
            return archive
    raise PlanGap(f"the archive of {system.name} is not known", SOURCE, "source: nvidia in stack.yml")


def archive_components(system: OperatingSystem, stack: StackSet, archive: Archive) -> dict[str, Component]:
    """The six components of the plan contract. Raises PlanGap where a version has no known package revision."""
    version = f"{stack.driver.version}-{_revision(stack, archive)}"
    driver = [package(system, row.name, row.version or version) for row in archive.driver_packages]
    cuda = archive.cuda_packages if stack.cuda else ()
    return {
        "driver": component(driver),
        "fabric_manager": component([]),
        "cuda": {
            "packages": [package(system, row.name, row.version) for row in cuda],
            "holds": [row.name for row in cuda if row.held],
        },
        "cudnn": component([]),
        "nccl": component([]),
        "container_toolkit": component(container_toolkit(system, stack)),
    }


def _revision(stack: StackSet, archive: Archive) -> str:
    if stack.driver.revision or stack.driver.version == archive.driver:
        return stack.driver.revision or archive.revision
    example = f"{archive.driver}-{archive.revision}"
    raise PlanGap(
        f"the package revision of driver {stack.driver.version} in the archive of {archive.os} is not known",
        SOURCE,
        f"look with apt-cache madison and state it in stack.yml, for example driver: {example}",
    )


def host_sources(archive: Archive) -> dict[str, Any]:
    """What of the host's own package sources the plan needs: components of one suite and its updates."""
    return {"suite": archive.suite, "components": list(archive.components)}


def archive_notes(archive: Archive) -> tuple[Reason, ...]:
    """What a reader of the plan should know of an archive: it holds one release, and replaces it."""
    text = (
        f"the archive of {archive.os} drops a release when it publishes the next: where apt finds no "
        f"{archive.driver}-{archive.revision}, state the new one as driver in stack.yml, revision included"
    )
    return (Reason(component="driver", because=text, source=SOURCE),)
