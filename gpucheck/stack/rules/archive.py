"""A distribution's own archive as the package source: its rules (one version per component, not every component), and
the driver's packages.

Debian's has driver and CUDA. Of Ubuntu's only the driver is used: everything else still comes from NVIDIA.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from gpucheck.knowledge.packages import Archive, UbuntuSystem, archives, ubuntu
from gpucheck.knowledge.tables import Branch, OperatingSystem
from gpucheck.stack.packages import Package, PlanGap, package
from gpucheck.stack.rules.driver import is_a, r4_r9_branch_window, r18_branches
from gpucheck.stack.types import (
    Clash,
    DriverChoice,
    Fact,
    PlanInput,
    Reason,
    Reasons,
    StackSet,
    StackSpec,
    Target,
    Unconfirmed,
)
from gpucheck.stack.versions import request

RULE, SOURCE, UBUNTU_SOURCE, UBUNTU = "R22", "debian-archive", "ubuntu-archive", "ubuntu"


def archive_of(system: OperatingSystem, spec: StackSpec | StackSet) -> Archive | None:
    """Return the requested archive; None: the packages come from NVIDIA, or there is no such archive."""
    if spec.source != "debian":
        return None
    return next((archive for archive in archives() if archive.os == system.id), None)


def r22_host(target: Target, spec: StackSpec) -> Iterator[Clash]:
    """R22: with `source: debian` a host gets the versions in the archive of its release, or is unsupported.

    The archive must be known and have the driver for the host's architecture, and the GPUs must work with proprietary
    modules and without fabric manager.
    """
    if spec.source != "debian":
        return
    archive, requested = archive_of(target.os, spec), Fact("source: debian is requested", "the specification")
    if archive is None:
        known = ", ".join(archive.os for archive in archives())
        fact = Fact(f"the archives known are those of {known}, and this host runs {target.os.name}", SOURCE)
        yield _clash("source", (requested, fact), f"source: debian does not work for {target.os.name}")
        return
    if target.arch not in archive.architectures:
        fact = Fact(f"the archive of {target.os.name} was read for {', '.join(archive.architectures)} only", SOURCE)
        because = f"the contents of the archive for {target.arch} are not known"
        yield _clash("source", (requested, fact), because, unknown=True)
    needs_open = next((gpu for gpu in target.models if gpu.kernel_module == "open"), None)
    if needs_open or spec.kernel_module == "open":
        needs = f"{is_a(needs_open)} and needs the open kernel modules" if needs_open else ""
        who = needs or "kernel_module: open is requested"
        because = f"the open modules of the archive are {archive.open_modules}, its driver is {archive.driver}"
        fact = Fact(f"{because}, and both must be one version", SOURCE)
        between = (Fact(who, "open-gkm, the specification"), fact)
        yield _clash("source" if needs_open else "kernel_module", between, because)


def r22_needed(archive: Archive | None, component: str, title: str, reason: Reason) -> Iterator[Clash]:
    """R22: a host that needs a component missing from the archive is unsupported."""
    if archive is not None and component in archive.absent:
        between, because = _lacks(archive, title, Fact(reason.because, reason.source))
        yield _clash("source", between, because)


def r22_driver(archive: Archive, branch: Branch, wanted: str) -> tuple[str, Reason] | Clash:
    """R22: the archive's driver is the only one; a newer release of its branch is stated with its package revision.

    The statement is needed after the archive has replaced the release in the tables.
    """
    requested = request(wanted)
    if requested.auto or requested.matches(archive.driver):
        ended = f"NVIDIA ended it ({', '.join(branch.eol.values())}); " if branch.state == "eol" else ""
        kept = f"{archive.maintained_by} updates it"
        text = f"{archive.driver} is the driver of the archive of {archive.os}, branch {branch.branch}: {ended}{kept}"
        return archive.driver, Reason(component="driver", because=text, rule=RULE, source=SOURCE)
    if requested.package_revision and requested.prefix[0] == int(branch.branch):
        text = f"{requested.version} as requested; the tables have {archive.driver} in the archive of {archive.os}"
        stated = "the specification"
        return requested.version, Reason(component="driver", because=text, rule=RULE, source=stated, confirmed=False)
    one = Fact(f"driver {wanted} is requested", "the specification")
    other = Fact(f"the archive of {archive.os} has driver {archive.driver} and no other", SOURCE)
    because = f"the archive of {archive.os} has no driver {wanted}"
    return Clash(component="driver", rule=RULE, between=(one, other), because=because)


def r22_flavour(archive: Archive) -> Reason:
    """R22: the modules are proprietary, as the archive's open ones are of another release than its libraries."""
    text = f"proprietary: the open modules of the archive are {archive.open_modules}, which is not the driver's version"
    return Reason(component="kernel_module", because=text, rule=RULE, source=SOURCE)


def r22_cuda(archive: Archive, wanted: str) -> str | Clash:
    """R22: the CUDA toolkit is the one of the archive; the request must match it."""
    requested = request(wanted)
    if requested.none or requested.matches(archive.cuda):
        return "none" if requested.none else archive.cuda
    one = Fact(f"cuda {wanted} is requested", "the specification")
    other = Fact(f"the archive of {archive.os} has CUDA {archive.cuda} and no other", SOURCE)
    because = f"the archive of {archive.os} has no CUDA {wanted}"
    return Clash(component="cuda", rule=RULE, between=(one, other), because=because)


def r22_absent(archive: Archive | None, component: str, title: str, wanted: str) -> Clash | None:
    """R22: a component missing from the archive is omitted; if a version is requested, there is no set."""
    if archive is None or component not in archive.absent:
        return None
    stated = Fact(f"{component} is {wanted}, and source is debian", "the specification")
    between, because = _lacks(archive, title, stated)
    return _clash(component, between, because)


def _lacks(archive: Archive, title: str, needed: Fact) -> tuple[tuple[Fact, Fact], str]:
    because = f"the archive of {archive.os} has no {title}"
    return (needed, Fact(because, SOURCE)), because


def _clash(component: str, between: tuple[Fact, Fact], because: str, *, unknown: bool = False) -> Clash:
    return Clash(component=component, rule=RULE, between=between, because=because, unknown=unknown)


# 0ubuntu0.24.04.1 is a revision for Ubuntu 24.04; 0ubuntu1 names no release.
FOR_RELEASE = re.compile(r"ubuntu\d+\.(?P<release>\d\d\.\d\d)(\.|$)")
REQUESTED = Fact("source: ubuntu is requested", "the specification")


def ubuntu_system(system: OperatingSystem) -> UbuntuSystem | None:
    """What is known of the archive of this release, None where nothing is."""
    return next((row for row in ubuntu().systems if row.os == system.id), None)


def r22_ubuntu_host(target: Target, spec: StackSpec) -> Iterator[Clash]:
    """R22: with `source: ubuntu` the driver is stated with its package revision, as the archive drops old releases.

    The release of Ubuntu and the architecture must be known to have signed modules.
    """
    if spec.source != UBUNTU:
        return
    row = ubuntu_system(target.os)
    if row is None:
        known = ", ".join(one.os for one in ubuntu().systems)
        fact = Fact(f"the archives known are those of {known}, and this host runs {target.os.name}", UBUNTU_SOURCE)
        yield _ubuntu_clash("source", fact, f"source: ubuntu does not support {target.os.name}")
        return
    if target.arch not in ubuntu().architectures:
        text = f"Canonical's guide names signatures of modules for {', '.join(ubuntu().architectures)} alone"
        because = f"that the modules of Ubuntu's archive for {target.arch} are signed was not read"
        yield _ubuntu_clash("source", Fact(text, UBUNTU_SOURCE), because)
    if spec.driver_extra:
        because = f"the packages of driver_extra in the archive of {target.os.name} are not known"
        yield _ubuntu_clash(
            "driver", Fact(f"driver_extra is {', '.join(spec.driver_extra)}", "the specification"), because
        )
    yield from _stated(target, spec, row)


def r22_ubuntu_lacks(spec: StackSpec, title: str, needed: Reason) -> Iterator[Clash]:
    """R22: boards that need the NVLink subnet manager, and racks that need IMEX, get their driver from NVIDIA."""
    if spec.source == UBUNTU:
        because = f"Ubuntu's archive is not known to hold {title}"
        between = (Fact(needed.because, needed.source), Fact(because, UBUNTU_SOURCE))
        yield Clash(component="source", rule=RULE, between=between, because=because)


def r22_ubuntu_branch(target: Target, spec: StackSpec, branch: Branch) -> Iterator[Reason]:
    """R22: the driver is that of Ubuntu's archive, whose modules Canonical builds and signs for each kernel."""
    row = ubuntu_system(target.os) if spec.source == UBUNTU else None
    if row is None:
        return
    text = f"from the archive of {target.os.name}: its modules are built for each kernel and signed by Canonical"
    yield Reason(
        component="driver", because=f"{text}, so Secure Boot needs no key of yours", rule=RULE, source=UBUNTU_SOURCE
    )
    if branch.branch not in row.branches:
        text = f"branch {branch.branch} was not seen in the archive of {target.os.name}; {', '.join(row.branches)} was"
        yield Reason(component="driver", because=text, rule=RULE, source=UBUNTU_SOURCE, confirmed=False)


def _stated(target: Target, spec: StackSpec, row: UbuntuSystem) -> Iterator[Clash]:
    revision = request(spec.driver).package_revision
    found = FOR_RELEASE.search(revision)
    if found and found["release"] != target.os.version:
        stated = Fact(f"driver {spec.driver} is of the archive of Ubuntu {found['release']}", "the specification")
        between = (stated, Fact(f"this host runs {target.os.name}", "the facts"))
        because = f"the archive of {target.os.name} has no packages of Ubuntu {found['release']}"
        way = "give the hosts of each release an inventory and a stack.yml of their own, or state this release's driver"
        yield Clash(component="driver", rule=RULE, between=between, because=because, way=way)
    if not revision:
        branch = _branch(target, spec, row)
        because = f"which release of driver {branch} the archive of {target.os.name} holds now is not known"
        package = ubuntu().asked_by.format(branch=branch)
        way = (
            f"ask on a host with: apt-cache madison {package} (after apt update), and state that version in stack.yml, "
            f"in the form driver: {branch}.95.05-0ubuntu0.{target.os.version}.1"
        )
        fact = Fact("the archive drops a release when it publishes the next", UBUNTU_SOURCE)
        between = (Fact(f"driver is {spec.driver}, without package revision", "the specification"), fact)
        yield Clash(component="driver", rule=RULE, between=between, because=because, unknown=True, way=way)


def _branch(target: Target, spec: StackSpec, row: UbuntuSystem) -> str:
    """The branch to ask for: the one that is stated, else the best of those in the archive that drive the GPUs."""
    for branch in r18_branches(spec.prefer, spec.driver):
        stated = bool(request(spec.driver).prefix)
        drives = not any(r4_r9_branch_window(gpu, branch.branch) for gpu in target.models)
        if drives and (stated or branch.branch in row.branches):
            return branch.branch
    return row.branches[0]


def _ubuntu_clash(component: str, fact: Fact, because: str) -> Clash:
    return Clash(
        component=component, rule=RULE, between=(REQUESTED, fact), because=because, unknown=component == "driver"
    )


KERNEL = "{kernel}"


def archive_driver(wanted: str, branch: Branch, archive: Archive) -> tuple[DriverChoice, Reasons] | Clash:
    """The one driver of Debian's archive. wanted: of the specification."""
    found = r22_driver(archive, branch, wanted)
    if isinstance(found, Clash):
        return found
    version, reason = found
    revision = request(wanted).package_revision or None
    choice = DriverChoice(branch=branch.branch, version=version, kernel_module="proprietary", revision=revision)
    return choice, (reason, r22_flavour(archive))


def archive_packages(plan: PlanInput) -> list[Package] | None:
    """The driver's packages of an archive, None where they come from NVIDIA. Raises PlanGap."""
    archive = plan.archive
    if plan.stack.source == UBUNTU:
        return _of_ubuntu(plan.system, plan.stack, ubuntu().driver_packages)
    if archive is None:
        return None
    version = f"{plan.stack.driver.version}-{_revision(plan.stack, archive)}"
    return [package(plan.system, row.name, row.version or version) for row in archive.driver_packages]


def ubuntu_fabric(plan: PlanInput) -> list[Package]:
    """Fabric manager of Ubuntu's archive, at the driver's version and, as no record shows another, its revision."""
    return _of_ubuntu(plan.system, plan.stack, ubuntu().fabric_packages)


def kernel_modules(stack: Any, kernels: Iterable[str]) -> dict[str, Any] | None:
    """Packages with modules for these kernels, and their pattern: {kernel} is a release, or a metapackage's flavor.

    None where DKMS builds the modules.
    """
    if stack.source != UBUNTU:
        return None
    pattern = _named(stack, ubuntu().modules)
    return {"pattern": pattern, "packages": [pattern.replace(KERNEL, kernel) for kernel in sorted(set(kernels))]}


def archive_notes(plan: PlanInput) -> Iterator[Reason]:
    """What a reader of the plan has to know of an archive: that it replaces its release."""
    archive = plan.archive
    if archive is not None:
        held, source = f"{archive.driver}-{archive.revision}", SOURCE
    elif plan.stack.source == UBUNTU:
        held, source = f"{plan.stack.driver.version}-{plan.stack.driver.revision}", UBUNTU_SOURCE
    else:
        return
    text = (
        f"the archive of {archive.os if archive else plan.system.id} drops a release when it publishes the next: where "
        f"apt finds no {held}, state the new one as driver in stack.yml, revision included"
    )
    yield Reason(component="driver", because=text, source=source)
    if archive is None:
        text = "kernel packages are held with the driver: a kernel that moves by itself may come without its modules"
        yield Reason(component="kernel_module", because=text, rule=RULE, source=source)
        version = plan.stack.driver.version
        text = (
            f"its modules can follow the driver's libraries by days: where apt finds none of {version} for the kernel, "
            "wait, or state the release that they are of"
        )
        yield Reason(component="kernel_module", because=text, rule=RULE, source=source)


def unrecorded(part: str, stack: Any, packages: Iterable[Package]) -> Iterator[Unconfirmed]:
    """Packages of Ubuntu's archive: no record shows a version of any."""
    name = ubuntu().asked_by.format(branch=stack.driver.branch)
    because = f"no package list of Ubuntu's archive was read; on a host, apt-cache madison {name} shows what it holds"
    for row in packages:
        yield Unconfirmed(component=part, spec=str(row["spec"]), because=because, source=UBUNTU_SOURCE)


def _of_ubuntu(system: OperatingSystem, stack: Any, names: Iterable[str]) -> list[Package]:
    driver = stack.driver
    if not driver.revision:
        message = f"the package revision of driver {driver.version} in the archive of {system.name} is not known"
        advice = "state the driver with it in stack.yml, and lock again"
        raise PlanGap(message, UBUNTU_SOURCE, advice)
    return [package(system, _named(stack, name), f"{driver.version}-{driver.revision}") for name in names]


def _named(stack: Any, name: str) -> str:
    flavour = "-open" if stack.driver.kernel_module == "open" else ""
    return name.replace("{branch}", stack.driver.branch).replace("{open}", flavour)


def _revision(stack: Any, archive: Archive) -> str:
    if stack.driver.revision or stack.driver.version == archive.driver:
        return str(stack.driver.revision or archive.revision)
    message = f"the package revision of driver {stack.driver.version} in the archive of {archive.os} is not known"
    advice = "look with apt-cache madison and state it in stack.yml, for example driver: "
    raise PlanGap(message, SOURCE, f"{advice}{archive.driver}-{archive.revision}")
