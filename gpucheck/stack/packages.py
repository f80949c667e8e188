"""Rows of a plan: packages with exact versions, repositories, files. Unknown values raise PlanGap."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpucheck.knowledge.packages import DriverPackages, FabricRevision, Revision, packages
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.types import Reason, StackSet
from gpucheck.stack.versions import parse

Package = dict[str, str | None]
FILES = Path(__file__).parent / "files"


class PlanGap(Exception):
    """A package name or version is not known. advice: what to do; source: where to find it."""

    def __init__(self, message: str, source: str, advice: str) -> None:
        super().__init__(message)
        self.source = source
        self.advice = advice


def component(found: list[Package]) -> dict[str, Any]:
    return {"packages": found, "holds": [package["name"] for package in found]}


def package(system: OperatingSystem, name: str, version: str | None) -> Package:
    """Return a package row.

    version: as the package manager prints it, with epoch and release; None = the newest of the repository.
    """
    if version is None:
        return {"name": name, "version": None, "spec": name}
    separator = "=" if system.family == "debian" else "-"
    return {"name": name, "version": version, "spec": f"{name}{separator}{version}"}


def started(names: Iterable[str]) -> list[dict[str, Any]]:
    """Return rows of services that run, and start at boot."""
    return [{"name": name, "enabled": True, "state": "started"} for name in names]


def text_of(name: str) -> str:
    """Return the text of a file that hosts get, from the folder files."""
    return (FILES / name).read_text(encoding="utf-8")


def file(path: str, content: str, *, initramfs: bool = False) -> dict[str, Any]:
    """Return a row of the plan. initramfs: the initramfs has a copy, so that a change needs a reboot."""
    return {"path": path, "content": content, "mode": "0644", "initramfs": initramfs}


def repository(
    name: str, url: str, key: tuple[str, str | None], keyring: str | None, signed: str
) -> dict[str, str | None]:
    """Return a repository row. key: URL and fingerprint. signed: for dnf only; apt always checks the metadata alone."""
    row: dict[str, str | None] = {"name": name, "kind": "apt" if keyring else "dnf", "url": url}
    row |= {"key_url": key[0], "key_fingerprint": key[1]}
    return row | ({"suite": "/", "keyring": keyring} if keyring else {"signed": signed})


def uname_arch(arch: str) -> str:
    return "x86_64" if arch == "x86_64" else "aarch64"


def driver_row(system: OperatingSystem, stack: StackSet) -> DriverPackages:
    """Return the driver's packages on a system. Raises PlanGap."""
    branch, flavour = stack.driver.branch, stack.driver.kernel_module
    for row in packages().drivers:
        inside = int(row.branches.first) <= int(branch) <= int(row.branches.last)
        if inside and row.flavour == flavour and system.os_id in row.os:
            return row
    known = {int(row.branches.first) for row in packages().drivers if system.os_id in row.os and row.flavour == flavour}
    later = min((first for first in known if first > int(branch)), default=None)
    raise PlanGap(
        f"the package names of driver branch {branch} with {flavour} modules on {system.name} are not known",
        "driver-install-guide",
        f"driver {later} or newer in stack.yml" if later else "the other kernel modules: kernel_module in stack.yml",
    )


def _revision(system: OperatingSystem, stack: StackSet) -> Revision:
    """Return the revision of the driver's packages. On Ubuntu: stated, recorded, or as that of most releases."""
    table = packages().revisions
    version = stack.driver.version
    if system.family == "redhat":
        return Revision(driver=table.el.driver.format(el=system.version))
    if stack.driver.revision:
        return Revision(driver=stack.driver.revision)
    if system.os_id == "debian":
        return table.debian
    return table.ubuntu.get(version) or Revision(driver=_by_rule(table.ubuntu_driver, version))


def revision_by_rule(system: OperatingSystem, stack: StackSet) -> Reason | None:
    version = stack.driver.version
    if system.os_id != "ubuntu" or stack.driver.revision or version in packages().revisions.ubuntu:
        return None
    revision = _revision(system, stack).driver
    text = (
        f"the package revision of driver {version} is taken to be {revision}, as that of most releases; if the "
        f"repository has another one, state it in stack.yml in the form driver: {version}-{revision}"
    )
    return Reason(component="driver", because=text, source="cuda-repo", confirmed=False)


def at_driver_version(system: OperatingSystem, stack: StackSet, name: str) -> Package:
    """Return a package that is released with the driver. Raises PlanGap."""
    revision = _revision(system, stack)
    epoch = f"{packages().revisions.el.epoch}:" if system.family == "redhat" else ""
    own = revision.packages.get(name, revision.driver)
    return package(system, name, f"{epoch}{stack.driver.version}-{own}")


def fabric_packages(system: OperatingSystem, stack: StackSet, names: Iterable[str]) -> list[Package]:
    """Return packages at the driver's version, released with fabric manager; names may include the branch."""
    table = packages().fabric
    suffix = f"-{stack.driver.branch}" if int(stack.driver.branch) <= int(table.suffixed_until) else ""
    bare = table.el_before if suffix and system.family == "redhat" else {}
    version = f"{stack.driver.version}-{_fabric_revision(system, stack)}"
    return [package(system, bare.get(name, name + suffix), version) for name in names]


def _fabric_revision(system: OperatingSystem, stack: StackSet) -> str:
    """Return the revision of fabric manager, NSCQ and IMEX: it differs from that of the driver's packages."""
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
