"""The components of a plan, the roles that apply them, and the sources that it needs: archive, module stream."""

from collections.abc import Iterable, Iterator
from typing import Any

from gpucheck.knowledge.archives import Archive, ubuntu
from gpucheck.knowledge.packages import packages
from gpucheck.knowledge.recorded import is_recorded, nearest, recorded
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.archived import unrecorded
from gpucheck.stack.components import BY_NAME, COMPONENTS
from gpucheck.stack.packages import PlanGap
from gpucheck.stack.rules.archive import SOURCE, archive_of
from gpucheck.stack.rules.ubuntu import UBUNTU, ubuntu_system
from gpucheck.stack.stack_set import StackSet
from gpucheck.stack.types import PlanInput, Reason, Unconfirmed


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
    if stack.driver.kept:
        return None
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


def unconfirmed(plan: PlanInput) -> tuple[Unconfirmed, ...]:
    """Return the repository directory, module stream and packages without a record. Raises PlanGap."""
    system, stack, folder = plan.system, plan.stack, plan.system.repository or ""
    found = [] if plan.archive else [*_folder(folder, stack.arch), *_stream(system, folder, stack)]
    for row in COMPONENTS:
        part, where = row.packages(plan), row.folder(plan)
        if part is not None and stack.source == UBUNTU and UBUNTU in row.in_archive:
            found += unrecorded(row.part, stack, part["packages"])
        if part is None or where is None:
            continue
        for package in part["packages"]:
            name, version = package["name"], package["version"]
            # Packages that are not held belong to the system.
            if name in part["holds"] and not is_recorded(where, stack.arch, name, version):
                because = _because(where, stack.arch, name, version)
                found.append(Unconfirmed(component=row.part, spec=package["spec"], because=because))
    return tuple(found)


def reasons(rows: tuple[Unconfirmed, ...]) -> tuple[Reason, ...]:
    """Return the same as reasons, one for each component and source."""
    by_part: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        by_part.setdefault((row.component, row.source), []).append(row.spec)
    return tuple(
        Reason(
            component=part, because=f"unconfirmed, no record shows {', '.join(specs)}", source=source, confirmed=False
        )
        for (part, source), specs in by_part.items()
    )


def _folder(folder: str, arch: str) -> Iterator[Unconfirmed]:
    if arch not in recorded().folders.get(folder, {}) and arch not in packages().folders.get(folder, {}):
        because = "no record shows this directory for this architecture"
        yield Unconfirmed(component="repositories", spec=f"directory {folder}/{arch}", because=because)


def _stream(system: OperatingSystem, folder: str, stack: StackSet) -> Iterator[Unconfirmed]:
    stream = module_stream(system, stack)
    if stream and stream["stream"] not in recorded().streams.get(folder, ()):
        because = f"no record shows this module stream in {folder}"
        yield Unconfirmed(component="driver", spec=f"{stream['module']}:{stream['stream']}", because=because)


def _because(folder: str, arch: str, name: str, version: str | None) -> str:
    text = f"no record shows it in {folder} for {arch}"
    near = nearest(folder, arch, name, version) if version else ""
    return f"{text}; recorded in {near}" if near else text
