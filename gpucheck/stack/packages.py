"""Rows of a plan: packages with exact versions, repositories, files. What is not known is a PlanGap, never a guess."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gpucheck.knowledge.packages import FabricRevision, packages
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.versions import parse

if TYPE_CHECKING:
    from gpucheck.stack.stack_set import StackSet

Package = dict[str, str | None]


class PlanGap(Exception):
    """A package name or version is not known. advice: what to do; source: where it would be found."""

    def __init__(self, message: str, source: str, advice: str) -> None:
        super().__init__(message)
        self.source = source
        self.advice = advice


def component(found: list[Package]) -> dict[str, Any]:
    """Packages that are all held."""
    return {"packages": found, "holds": [package["name"] for package in found]}


def package(system: OperatingSystem, name: str, version: str | None) -> Package:
    """version as the package manager prints it, epoch and release included; None = the newest of the repository."""
    if version is None:
        return {"name": name, "version": None, "spec": name}
    separator = "=" if system.family == "debian" else "-"
    return {"name": name, "version": version, "spec": f"{name}{separator}{version}"}


def started(names: Iterable[str]) -> list[dict[str, Any]]:
    """Services that run, and start at boot."""
    return [{"name": name, "enabled": True, "state": "started"} for name in names]


def file(path: str, content: str, *, initramfs: bool = False) -> dict[str, Any]:
    """A row of the plan. initramfs: the initramfs carries a copy, and a change of it reboots."""
    return {"path": path, "content": content, "mode": "0644", "initramfs": initramfs}


def repository(
    name: str, url: str, key: tuple[str, str | None], keyring: str | None, signed: str
) -> dict[str, str | None]:
    """key: URL and fingerprint. signed counts for dnf alone: apt always checks the metadata and nothing else."""
    row: dict[str, str | None] = {"name": name, "kind": "apt" if keyring else "dnf", "url": url}
    row |= {"key_url": key[0], "key_fingerprint": key[1]}
    return row | ({"suite": "/", "keyring": keyring} if keyring else {"signed": signed})


def uname_arch(arch: str) -> str:
    """The machine as the kernel and rpm name it."""
    return "x86_64" if arch == "x86_64" else "aarch64"


def fabric_packages(system: OperatingSystem, stack: "StackSet", names: Iterable[str]) -> list[Package]:
    """Packages at the driver's version that are released with fabric manager; their names may carry the branch."""
    suffix = f"-{stack.driver.branch}" if int(stack.driver.branch) <= int(packages().fabric.suffixed_until) else ""
    version = f"{stack.driver.version}-{_fabric_revision(system, stack)}"
    return [package(system, name + suffix, version) for name in names]


def _fabric_revision(system: OperatingSystem, stack: "StackSet") -> str:
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
