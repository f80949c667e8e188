"""The plan of one group of hosts: exact packages, repositories, holds, files, services and the reboot rule.

The roles apply it and hold no version logic of their own. A name or a version that is not known is refused here.
"""

from typing import Any, Literal

import msgspec

from gpucheck.knowledge.archives import Archive
from gpucheck.knowledge.packages import packages
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.lock import Lock, LockedGroup, LockedHost, still_valid, target_of_group
from gpucheck.stack.packages import PlanGap, components, gaps, module_stream
from gpucheck.stack.plan.archive import archive_components, archive_notes, archive_of_set, host_sources
from gpucheck.stack.plan.files import file, files
from gpucheck.stack.plan.kernel import compilers, headers
from gpucheck.stack.plan.options import option_components, option_notes
from gpucheck.stack.plan.services import drop_ins, services
from gpucheck.stack.plan.system import epel_row, python, release_packages, system_repositories, uname_arch
from gpucheck.stack.plan.unconfirmed import reasons as unconfirmed_reasons
from gpucheck.stack.plan.unconfirmed import unconfirmed
from gpucheck.stack.rdma import Rdma, rdma_plan
from gpucheck.stack.refused import RefusedHost
from gpucheck.stack.settings.tuning import tuning_plan
from gpucheck.stack.spec import Repository, Wish
from gpucheck.stack.types import Conflict, Fact, Reason, Refusal, StackSet, Unconfirmed

SCHEMA = "gpucheck.plan/1"
# The roles in this order: what comes later needs what came before, and a reboot happens within the driver's.
ORDER = ("repository", "driver", "cuda", "cudnn", "nccl", "container_toolkit")
# What stack.yml calls it under repositories.
EPEL = "epel"
# After them, and only where the plan has something for them.
LATER = ("container_engine", "tuning", "kernel_lock")


class Plan(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    """The outside contract ``gpucheck.plan/1``. host: the host that ``headers`` are for, None = all of the group.

    hosts: whom it is for; the plan of one host names that host alone, so that a new neighbour changes nothing on it.

    order: the roles that carry it out, first to last; the driver's installs fabric manager in the same transaction.

    archive: suite and components of the host's own package sources that the packages come from; left out where they
    come from ``repositories`` alone. tuning: settings of the host, see ``tuning_plan``; left out where none is wished.
    container_engines: rows of ``knowledge.packages.ContainerEngine``; left out without container toolkit, or where the
    site configures its engines itself. kernel_lock: hold, and left out where the kernels are left to the hosts.
    components: packages and holds of six parts, and of the options that are wished for, see ``option_components``.
    prerequisites: packages that bring further sources of packages. dkms_source: where DKMS comes from on EL, that is
    ``repository``, a row like those of repositories that may supply the packages of ``include`` alone, and ``enable``,
    repositories of the system itself. python: interpreter of gpucheck's own environment and the packages that bring it.
    headers, compilers: from the host's own sources, what DKMS builds with.
    unconfirmed: what of it no public document shows in NVIDIA's folders; the reasons say the same in words.
    """

    schema_: str = SCHEMA
    group: str
    hosts: tuple[str, ...]
    host: str | None
    os: dict[str, str]
    arch: str
    package_manager: Literal["apt", "dnf"]
    order: tuple[str, ...]
    stack: StackSet
    repositories: tuple[dict[str, str | None], ...]
    archive: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    tuning: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    container_engines: tuple[dict[str, Any], ...] | msgspec.UnsetType = msgspec.UNSET
    kernel_lock: Literal["hold"] | msgspec.UnsetType = msgspec.UNSET
    module_stream: dict[str, str] | None
    components: dict[str, dict[str, Any]]
    prerequisites: tuple[str, ...]
    dkms_source: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    python: dict[str, Any] = msgspec.field(default_factory=dict)
    headers: tuple[str, ...]
    compilers: tuple[str, ...] = ()
    files: tuple[dict[str, Any], ...]
    services: tuple[dict[str, Any], ...]
    reboot: dict[str, tuple[str, ...]]
    expected: dict[str, str | None]
    reasons: tuple[Reason, ...]
    unconfirmed: tuple[Unconfirmed, ...] = ()


class NoSuchHost(LookupError):
    """The lock holds no such host or group."""


def plan(lock: Lock, *, host: str | None = None, group: str | None = None) -> Plan | Refusal:
    """The plan of a host, or of a whole group. Exactly one of the two is given.

    Raises NoSuchHost, or UnknownInput where a lock was edited to something that the tables do not know.
    """
    name = _group_of(lock, host) if host is not None else (group or "")
    if isinstance(name, RefusedHost):
        return Refusal(conflicts=name.conflicts, unknown=name.kind == "unknown")
    if name not in lock.groups:
        known = ", ".join(lock.groups) or "none"
        raise NoSuchHost(f"the lock has no group {name!r}. It has: {known}")
    locked = lock.groups[name]
    broken = still_valid(target_of_group(locked), locked.stack, lock.wish)
    if broken:
        return Refusal(conflicts=broken)
    try:
        return _plan(name, locked, lock.wish, host)
    except PlanGap as gap:
        return Refusal(conflicts=(_gap_conflict(gap, locked),))


def _group_of(lock: Lock, host: str) -> str | RefusedHost:
    if host in lock.refused:
        return lock.refused[host]
    for name, group in lock.groups.items():
        if host in group.hosts:
            return name
    known = ", ".join(sorted({*lock.refused, *(h for g in lock.groups.values() for h in g.hosts)})) or "none"
    raise NoSuchHost(f"the lock has no host {host!r}. It has: {known}. Lock again with its facts.")


def _gap_conflict(gap: PlanGap, locked: LockedGroup) -> Conflict:
    between = (Fact(str(gap), gap.source), Fact(f"{locked.os} on {locked.arch} needs it", "the lock"))
    return Conflict(between=between, because=str(gap), source=gap.source, try_=gap.advice)


def _plan(name: str, locked: LockedGroup, wish: Wish, host: str | None) -> Plan:
    target = target_of_group(locked)
    system = target.os
    stack = locked.stack
    manager: Literal["apt", "dnf"] = "apt" if system.family == "debian" else "dnf"
    archive, tuning = archive_of_set(system, stack), tuning_plan(wish.tuning, locked.arch)
    parts = archive_components(system, stack, archive) if archive else components(system, stack)
    options = option_components(target, stack, wish)
    kernels = _kernels(locked, host)
    rdma, rdma_reasons = rdma_plan(_rdma_hosts(locked, host), stack)
    engines, held = _engines(wish, stack), wish.kernel_lock == "hold"
    later = zip(LATER, (engines, tuning, held), strict=True)
    notes = archive_notes(archive) if archive else gaps(system, stack)
    said = unconfirmed(system, stack, parts | options)
    return Plan(
        group=name,
        hosts=tuple(locked.hosts) if host is None else (host,),
        host=host,
        os={"id": system.os_id, "version": system.version, "family": system.family},
        arch=locked.arch,
        package_manager=manager,
        order=(*ORDER, *options, *(role for role, wanted in later if wanted)),
        stack=stack,
        repositories=tuple(_repositories(system, locked.arch, wish, stack, archive)),
        archive=host_sources(archive) if archive else msgspec.UNSET,
        tuning=tuning or msgspec.UNSET,
        container_engines=engines or msgspec.UNSET,
        kernel_lock="hold" if held else msgspec.UNSET,
        module_stream=module_stream(system, stack),
        components=parts | options,
        # It would name the public addresses beside a site's mirror.
        prerequisites=() if EPEL in wish.repositories else release_packages(system),
        dkms_source=_dkms_source(system, locked.arch, wish) or msgspec.UNSET,
        python=python(system),
        headers=headers(system, kernels),
        compilers=compilers(system, stack.driver.kernel_module, kernels),
        files=(*files(manager, stack, wish), *(file(*row) for row in rdma), *_unit_files(system, locked, wish, host)),
        services=tuple(services(stack, wish.imex)),
        reboot={"when": ("nouveau-loaded", "loaded-differs-from-installed", "module-files-changed")},
        expected={
            "driver_version": stack.driver.version,
            "kernel_module": stack.driver.kernel_module,
            "fabric_manager_version": stack.fabric_manager,
        },
        reasons=(*notes, *option_notes(stack), *rdma_reasons, *unconfirmed_reasons(said)),
        unconfirmed=said,
    )


def _engines(wish: Wish, stack: StackSet) -> tuple[dict[str, Any], ...]:
    """What may be on a host and is told of its GPUs then; which of them is there, the host knows."""
    if stack.container_toolkit is None or wish.container_engines == "leave":
        return ()
    return tuple(msgspec.to_builtins(row) for row in packages().container_toolkit.engines)


def _repositories(
    system: OperatingSystem, arch: str, wish: Wish, stack: StackSet, archive: Archive | None
) -> list[dict[str, str | None]]:
    """NVIDIA's repositories, or the site's mirrors of them; not the driver's where an archive holds that."""
    table = packages().repositories
    distro = system.repository
    if distro is None:
        raise PlanGap(
            f"NVIDIA has no package repository for {system.name}", "cuda-repo", "a newer release of the system"
        )
    if distro not in table.keys:
        raise PlanGap(f"the signing key of {distro} is not known", "cuda-repo", "add it to packages.yml")
    apt = system.family == "debian"
    key = table.keys[distro]
    base = table.cuda_url.format(distro=distro, arch=arch)
    name = "nvidia-cuda" if apt else f"cuda-{distro}-{arch}"
    cuda = _repository(name, base, (f"{base}{key.file}", key.fingerprint), table.keyring if apt else None, table.signed)
    found = [] if archive else [_mirrored(cuda, wish, ("nvidia-cuda", name), distro, arch)]
    if stack.container_toolkit:
        box = table.container_toolkit
        url = (box.apt_url if apt else box.dnf_url).format(
            deb_arch="amd64" if arch == "x86_64" else "arm64", uname_arch=uname_arch(arch)
        )
        keyring = box.keyring if apt else None
        tool = _repository("nvidia-container-toolkit", url, (box.key_url, box.fingerprint), keyring, box.signed)
        found.append(_mirrored(tool, wish, ("nvidia-container-toolkit",), distro, arch))
    if stack.gdrcopy:
        keyring = "/usr/share/keyrings/gdrcopy.gpg" if apt else None
        own = _repository("gdrcopy", "", ("", None), keyring, table.signed)
        found.append(_mirrored(own, wish, ("gdrcopy",), distro, arch))
    return found


def _repository(
    name: str, url: str, key: tuple[str, str | None], keyring: str | None, signed: str
) -> dict[str, str | None]:
    """key: URL and fingerprint. signed counts for dnf alone: apt always checks the metadata and nothing else."""
    row: dict[str, str | None] = {"name": name, "kind": "apt" if keyring else "dnf", "url": url}
    row |= {"key_url": key[0], "key_fingerprint": key[1]}
    return row | ({"suite": "/", "keyring": keyring} if keyring else {"signed": signed})


def _without_epel(wish: Wish) -> bool:
    return wish.repositories.get(EPEL, Repository()).url == "none"


def _dkms_source(system: OperatingSystem, arch: str, wish: Wish) -> dict[str, Any] | None:
    row = epel_row(system, arch)
    if row is None or system.repository is None or _without_epel(wish):
        return None
    mirrored = _mirrored(row, wish, (EPEL,), system.repository, arch)
    return {"repository": mirrored, "enable": system_repositories(system, arch)}


def _mirrored(
    repository: dict[str, str | None], wish: Wish, names: tuple[str, ...], distro: str, arch: str
) -> dict[str, str | None]:
    """The repository with the site's own values; the later, more exact name wins."""
    result = dict(repository)
    for name in names:
        override = wish.repositories.get(name, Repository())
        # A mirror signs with its own key: NVIDIA's fingerprint would only mislead.
        if override.key_url:
            result["key_fingerprint"] = None
        if override.signed and "signed" in result:
            result["signed"] = override.signed
        for field in ("url", "key_url", "key_fingerprint"):
            value = getattr(override, field)
            if value:
                result[field] = value.replace("{distro}", distro).replace("{arch}", arch)
    if not result["key_fingerprint"]:
        message = f"no fingerprint of the signing key {result['key_url']} is known, so any key would be trusted"
        advice = f"compare it with its publisher's, and set repositories.{names[0]}.key_fingerprint in stack.yml"
        raise PlanGap(message, "cuda-repo", advice)
    return result


def _planned_hosts(locked: LockedGroup, host: str | None) -> dict[str, LockedHost]:
    return {host: locked.hosts[host]} if host is not None else locked.hosts


def _rdma_hosts(locked: LockedGroup, host: str | None) -> dict[str, tuple[Rdma, str]]:
    return {name: (one.rdma, one.kernel) for name, one in _planned_hosts(locked, host).items()}


def _kernels(locked: LockedGroup, host: str | None) -> tuple[str, ...]:
    """The running kernels, but for those that are not the host's own."""
    hosts = _planned_hosts(locked, host).values()
    return tuple(h.kernel for h in hosts if not any(s.lower().startswith("kernel") for s in h.stand_ins))


def _unit_files(system: OperatingSystem, locked: LockedGroup, wish: Wish, host: str | None) -> list[dict[str, Any]]:
    names = [row["name"] for row in services(locked.stack, wish.imex)]
    simulated = all(one.simulated for one in _planned_hosts(locked, host).values())
    return [file(path, content) for path, content in drop_ins(names, system, simulated=simulated)]
