"""Packages with exact versions, by operating system. What is not known is a PlanGap, never a guess."""

from typing import Any

from gpucheck.knowledge.packages import DriverPackages, FabricRevision, Revision, packages
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.types import Reason, StackSet
from gpucheck.stack.versions import major, minor, parse

Package = dict[str, str | None]
Component = dict[str, Any]


class PlanGap(Exception):
    """A package name or version is not known. advice: what to do; source: where it would be found."""

    def __init__(self, message: str, source: str, advice: str) -> None:
        super().__init__(message)
        self.source = source
        self.advice = advice


def components(system: OperatingSystem, stack: StackSet) -> dict[str, Component]:
    """The six components of the plan contract; empty packages = not wanted here. Raises PlanGap."""
    return {
        "driver": component(_driver(system, stack)),
        "fabric_manager": _held_but(component(_fabric(system, stack)), packages().fabric.subnet_manager.of_the_system),
        "cuda": component(_cuda(system, stack)),
        "cudnn": component(_cudnn(system, stack)),
        "nccl": component(_nccl(system, stack)),
        "container_toolkit": component(container_toolkit(system, stack)),
    }


def gaps(system: OperatingSystem, stack: StackSet) -> tuple[Reason, ...]:
    """What of this plan rests on names or versions that are not confirmed."""
    table = packages()
    notes = [("driver", _driver_row(system, stack).unconfirmed)]
    notes.append(("repositories", table.repositories.keys[system.repository or ""].unconfirmed))
    if stack.subnet_manager:
        notes.append(("fabric_manager", "the version of nvlsm is not known here: the newest is taken, then held"))
    return tuple(
        Reason(component=component, because=text, source="cuda-repo", confirmed=False)
        for component, text in notes
        if text
    )


def module_stream(system: OperatingSystem, stack: StackSet) -> dict[str, str] | None:
    """The stream of NVIDIA's dnf module that the driver comes from, None where the system has no streams."""
    streams = packages().module_streams
    if system.family != "redhat" or int(system.version) not in streams.el_majors:
        return None
    kind = "open" if stack.driver.kernel_module == "open" else "dkms"
    return {"module": streams.module, "stream": f"{stack.driver.branch}-{kind}"}


def component(found: list[Package]) -> Component:
    """Packages that are all held."""
    return {"packages": found, "holds": [package["name"] for package in found]}


def _held_but(found: Component, free: tuple[str, ...]) -> Component:
    """Without holds of what belongs to the system, or to a vendor's own RDMA packages: those move with their source."""
    return {**found, "holds": [name for name in found["holds"] if name not in free]}


def package(system: OperatingSystem, name: str, version: str | None) -> Package:
    """version as the package manager prints it, epoch and release included; None = the newest of the repository."""
    if version is None:
        return {"name": name, "version": None, "spec": name}
    separator = "=" if system.family == "debian" else "-"
    return {"name": name, "version": version, "spec": f"{name}{separator}{version}"}


def _driver_row(system: OperatingSystem, stack: StackSet) -> DriverPackages:
    branch, flavour = stack.driver.branch, stack.driver.kernel_module
    for row in packages().drivers:
        inside = int(row.branches.first) <= int(branch) <= int(row.branches.last)
        if inside and row.flavour == flavour and system.os_id in row.os:
            return row
    raise PlanGap(
        f"the package names of driver branch {branch} with {flavour} modules on {system.name} are not known",
        "driver-install-guide",
        "driver 580 or newer in stack.yml: older branches are not planned",
    )


def _revision(system: OperatingSystem, stack: StackSet) -> Revision:
    """The driver's own revision. On Ubuntu it follows no rule, so only seen ones are used, or the one stated."""
    table = packages().revisions
    version = stack.driver.version
    if system.family == "redhat":
        return Revision(driver=table.el.driver.format(el=system.version))
    if stack.driver.revision:
        return Revision(driver=stack.driver.revision)
    if system.os_id == "debian":
        return table.debian
    if version in table.ubuntu:
        return table.ubuntu[version]
    raise PlanGap(
        f"the package revision of driver {version} for {system.name} is not known",
        "cuda-repo",
        f"look with apt-cache madison and state it in stack.yml, for example driver: {version}-1ubuntu1",
    )


def _fabric_revision(system: OperatingSystem, stack: StackSet) -> str:
    """What fabric manager, NSCQ and IMEX carry behind the driver's version: never the driver's own revision."""
    table = packages().revisions
    version = stack.driver.version
    if system.family == "redhat":
        return _by_rule(table.el.fabric, version).format(el=system.version)
    if system.os_id == "debian":
        return str(table.debian.fabric)
    known = table.ubuntu.get(version)
    return (known.fabric if known else None) or _by_rule(table.ubuntu_fabric, version)


def _by_rule(rule: FabricRevision, version: str) -> str:
    return rule.bare if parse(version) <= parse(rule.bare_until) else rule.later


def _driver(system: OperatingSystem, stack: StackSet) -> list[Package]:
    row, revision = _driver_row(system, stack), _revision(system, stack)
    epoch = f"{packages().revisions.el.epoch}:" if system.family == "redhat" else ""
    values = {"version": stack.driver.version, "branch": stack.driver.branch}
    found = [package(system, name.format(**values), None) for name in row.newest]
    for name in (pattern.format(**values) for pattern in row.packages):
        own = revision.packages.get(name, revision.driver)
        found.append(package(system, name, f"{epoch}{stack.driver.version}-{own}"))
    return found


def _fabric(system: OperatingSystem, stack: StackSet) -> list[Package]:
    table = packages().fabric
    names = list(table.fabric_manager) if stack.fabric_manager else []
    names += table.imex if stack.imex else []
    if not names:
        return []
    suffix = f"-{stack.driver.branch}" if int(stack.driver.branch) <= int(table.suffixed_until) else ""
    version = f"{stack.driver.version}-{_fabric_revision(system, stack)}"
    found = [package(system, name + suffix, version) for name in names]
    if stack.subnet_manager:
        extra = table.subnet_manager.apt if system.family == "debian" else table.subnet_manager.dnf
        found += [package(system, name, None) for name in extra]
    return found


def _cuda(system: OperatingSystem, stack: StackSet) -> list[Package]:
    if stack.cuda is None:
        return []
    table = packages().cuda
    name = table.package.format(dash=minor(stack.cuda).replace(".", "-"))
    found = [package(system, name, f"{stack.cuda}-{table.revision}")]
    common = table.el_config_common.get(minor(stack.cuda))
    if system.family == "redhat" and common:
        found.append(package(system, "cuda-toolkit-config-common", common))
    return found


def _cudnn(system: OperatingSystem, stack: StackSet) -> list[Package]:
    if stack.cudnn is None or stack.cuda is None:
        return []
    table = packages().cudnn
    names = table.apt if system.family == "debian" else table.dnf
    version = f"{stack.cudnn}-{table.revision}"
    return [package(system, name.format(major=major(stack.cuda)), version) for name in names]


def _nccl(system: OperatingSystem, stack: StackSet) -> list[Package]:
    """The CUDA build stands behind the package revision: 2.29.3+cuda12.9 -> 2.29.3-1+cuda12.9."""
    if stack.nccl is None:
        return []
    table = packages().nccl
    version, _, build = stack.nccl.partition("+")
    names = table.apt if system.family == "debian" else table.dnf
    return [package(system, name, f"{version}-{table.revision}+{build}") for name in names]


def container_toolkit(system: OperatingSystem, stack: StackSet) -> list[Package]:
    """Its packages, all at one version; none where it is not wanted."""
    if stack.container_toolkit is None:
        return []
    table = packages().container_toolkit
    return [package(system, name, f"{stack.container_toolkit}-{table.revision}") for name in table.packages]
