"""The driver's packages where a distribution's own archive is the source, instead of NVIDIA's repositories."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from gpucheck.knowledge.packages import Archive, ubuntu
from gpucheck.knowledge.tables import Branch, OperatingSystem
from gpucheck.stack.packages import Package, PlanGap, package
from gpucheck.stack.rules import archive as archive_rules
from gpucheck.stack.rules import ubuntu as ubuntu_rules
from gpucheck.stack.types import Clash, DriverChoice, PlanInput, Reason, Reasons, Unconfirmed
from gpucheck.stack.versions import request

KERNEL = "{kernel}"


def archive_driver(wanted: str, branch: Branch, archive: Archive) -> tuple[DriverChoice, Reasons] | Clash:
    """The one driver of Debian's archive. wanted: of the specification."""
    found = archive_rules.r22_driver(archive, branch, wanted)
    if isinstance(found, Clash):
        return found
    version, reason = found
    revision = request(wanted).package_revision or None
    choice = DriverChoice(branch=branch.branch, version=version, kernel_module="proprietary", revision=revision)
    return choice, (reason, archive_rules.r22_flavour(archive))


def archive_packages(plan: PlanInput) -> list[Package] | None:
    """The driver's packages of an archive, None where they come from NVIDIA. Raises PlanGap."""
    archive = plan.archive
    if plan.stack.source == ubuntu_rules.UBUNTU:
        return _of_ubuntu(plan.system, plan.stack, ubuntu().driver_packages)
    if archive is None:
        return None
    version = f"{plan.stack.driver.version}-{_revision(plan.stack, archive)}"
    return [package(plan.system, row.name, row.version or version) for row in archive.driver_packages]


def ubuntu_fabric(plan: PlanInput) -> list[Package]:
    """Fabric manager of Ubuntu's archive, at the driver's version and, as no record shows another, its revision."""
    return _of_ubuntu(plan.system, plan.stack, ubuntu().fabric_packages)


def kernel_modules(stack: Any, kernels: Iterable[str]) -> dict[str, Any] | msgspec.UnsetType:
    """Packages with modules for these kernels, and their pattern: {kernel} is a release, or a metapackage's flavor.

    Unset where DKMS builds the modules.
    """
    if stack.source != ubuntu_rules.UBUNTU:
        return msgspec.UNSET
    pattern = _named(stack, ubuntu().modules)
    return {"pattern": pattern, "packages": [pattern.replace(KERNEL, kernel) for kernel in sorted(set(kernels))]}


def archive_notes(plan: PlanInput) -> Iterator[Reason]:
    """What a reader of the plan has to know of an archive: that it replaces its release."""
    archive = plan.archive
    if archive is not None:
        held, source = f"{archive.driver}-{archive.revision}", archive_rules.SOURCE
    elif plan.stack.source == ubuntu_rules.UBUNTU:
        held, source = f"{plan.stack.driver.version}-{plan.stack.driver.revision}", ubuntu_rules.SOURCE
    else:
        return
    text = (
        f"the archive of {archive.os if archive else plan.system.id} drops a release when it publishes the next: where "
        f"apt finds no {held}, state the new one as driver in stack.yml, revision included"
    )
    yield Reason(component="driver", because=text, source=source)
    if archive is None:
        text = "kernel packages are held with the driver: a kernel that moves by itself may come without its modules"
        yield Reason(component="kernel_module", because=text, rule=ubuntu_rules.RULE, source=source)
        version = plan.stack.driver.version
        text = (
            f"its modules can follow the driver's libraries by days: where apt finds none of {version} for the kernel, "
            "wait, or state the release that they are of"
        )
        yield Reason(component="kernel_module", because=text, rule=ubuntu_rules.RULE, source=source)


def unrecorded(part: str, stack: Any, packages: Iterable[Package]) -> Iterator[Unconfirmed]:
    """Packages of Ubuntu's archive: no record shows a version of any."""
    name = ubuntu().asked_by.format(branch=stack.driver.branch)
    because = f"no package list of Ubuntu's archive was read; on a host, apt-cache madison {name} shows what it holds"
    for row in packages:
        yield Unconfirmed(component=part, spec=str(row["spec"]), because=because, source=ubuntu_rules.SOURCE)


def _of_ubuntu(system: OperatingSystem, stack: Any, names: Iterable[str]) -> list[Package]:
    driver = stack.driver
    if not driver.revision:
        message = f"the package revision of driver {driver.version} in the archive of {system.name} is not known"
        advice = "state the driver with it in stack.yml, and lock again"
        raise PlanGap(message, ubuntu_rules.SOURCE, advice)
    return [package(system, _named(stack, name), f"{driver.version}-{driver.revision}") for name in names]


def _named(stack: Any, name: str) -> str:
    flavour = "-open" if stack.driver.kernel_module == "open" else ""
    return name.replace("{branch}", stack.driver.branch).replace("{open}", flavour)


def _revision(stack: Any, archive: Archive) -> str:
    if stack.driver.revision or stack.driver.version == archive.driver:
        return str(stack.driver.revision or archive.revision)
    example = f"{archive.driver}-{archive.revision}"
    raise PlanGap(
        f"the package revision of driver {stack.driver.version} in the archive of {archive.os} is not known",
        archive_rules.SOURCE,
        f"look with apt-cache madison and state it in stack.yml, for example driver: {example}",
    )
