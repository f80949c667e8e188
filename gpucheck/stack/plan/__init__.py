"""The plan of one group of hosts: exact packages, repositories, holds, files, services and the reboot rule.

The roles apply it and have no version logic. An unknown name or version raises PlanGap here.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from gpucheck.knowledge.packages import packages
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.components import BY_TURN, COMPONENTS
from gpucheck.stack.components.base import MANAGED
from gpucheck.stack.components.driver import KEPT_EXCLUDE
from gpucheck.stack.lock import Lock, LockedGroup, LockedHost, RefusedHost, group_name, still_valid, target_of_group
from gpucheck.stack.packages import PlanGap, file, repository
from gpucheck.stack.plan import parts
from gpucheck.stack.rdma import library_plan, rdma_plan
from gpucheck.stack.rules.archive import kernel_modules
from gpucheck.stack.rules.driver import r15_newer_kernel
from gpucheck.stack.settings import LEAVE, tuning_plan
from gpucheck.stack.spec import DIGEST, EPEL, NONE, Repository, StackSpec, managed
from gpucheck.stack.stack_set import StackSet
from gpucheck.stack.types import Conflict, Fact, PlanInput, Reason, Refusal, Target, Unconfirmed

SCHEMA = "gpucheck.plan/1"
# Roles after those of the components, each only if the plan has rows for it.
LATER = ("container_engine", "tuning", "kernel_lock")


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"schema_": "schema"}):
    """The public contract ``gpucheck.plan/1``. host: the host that ``headers`` are for, None = all of the group.

    hosts: the hosts of the plan; the plan of one host names that host alone, so that new hosts do not change it.
    order: the roles that apply it, first to last; the driver's installs fabric manager in the same transaction.

    Fields that are omitted if they do not apply:
    sources: ``managed`` if the hosts' own package sources have all packages and none is added.
    archive: suite and components of the host's own sources, if packages come from them.
    tuning: settings of the host, see ``tuning_plan``.
    container_engines: rows of ``knowledge.packages.ContainerEngine``, if gpucheck installs the container toolkit and
    configures the engines.
    kernel_lock: ``hold``, if kernel packages are held.
    mok: paths of the key that DKMS signs modules with and of its certificate.
    header_metapackage: the package that installs headers with later kernels, by the flavor of the host's kernel
    metapackage.

    components: packages and holds by component, and what else it needs, see ``Component.packages``.
    prerequisites: packages that add package sources. dkms_source: the source of DKMS on EL: ``repository``, a row like
    those of repositories that may supply only the packages of ``include``, and ``enable``, repositories of the system.
    python: interpreter of gpucheck's environment and the packages that install it.
    headers, compilers: build dependencies of DKMS, from the host's own sources.
    kernel_modules: if the distribution builds the modules (and not DKMS), the pattern of their packages, for the
    release of a kernel and for the flavor of a metapackage, and their names for the kernels of the lock. The kernel
    packages are then held.
    unconfirmed: rows that no public document shows in NVIDIA's repositories; the reasons list them as text.
    """

    schema_: str
    group: str
    hosts: tuple[str, ...]
    host: str | None
    os: dict[str, str]
    arch: str
    package_manager: Literal["apt", "dnf"]
    order: tuple[str, ...]
    stack: StackSet
    repositories: tuple[dict[str, str | None], ...]
    sources: Literal["managed"] | None = None
    archive: dict[str, Any] | None = None
    tuning: dict[str, Any] | None = None
    container_engines: tuple[dict[str, Any], ...] | None = None
    mok: dict[str, str | None] | None = None
    kernel_lock: Literal["hold"] | None = None
    module_stream: dict[str, str] | None
    components: dict[str, dict[str, Any]]
    prerequisites: tuple[str, ...]
    dkms_source: dict[str, Any] | None = None
    python: dict[str, Any]
    headers: tuple[str, ...]
    header_metapackage: str | None = None
    kernel_modules: dict[str, Any] | None = None
    compilers: tuple[str, ...]
    files: tuple[dict[str, Any], ...]
    services: tuple[dict[str, Any], ...]
    reboot: dict[str, tuple[str, ...]]
    expected: dict[str, str | None]
    reasons: tuple[Reason, ...]
    unconfirmed: tuple[Unconfirmed, ...]


def planned_set(target: Target, stack: StackSet, spec: StackSpec) -> StackSet | Refusal:
    """Return the set with the unconfirmed rows of its plan, or why its packages cannot be planned."""
    try:
        wanted = _input(target, stack, spec)
        parts.planned_components(wanted), _repositories(wanted)
        return msgspec.structs.replace(stack, unconfirmed=parts.unconfirmed(wanted))
    except PlanGap as gap:
        return _unplanned(gap, target)


def planned_lock(made: Lock) -> Lock:
    """Return the lock without the groups whose packages cannot be planned; their hosts are unsupported."""
    refused, groups = dict(made.refused), {}
    for name, group in made.groups.items():
        found = planned_set(target_of_group(group), group.stack, made.spec)
        if isinstance(found, Refusal):
            refused |= {host: RefusedHost(kind="impossible", conflicts=found.conflicts) for host in group.hosts}
        else:
            groups[name] = group
    return msgspec.structs.replace(made, groups=groups, refused=dict(sorted(refused.items())))


def described_plan(target: Target, stack: StackSet, spec: StackSpec, kernel: str | None = None) -> Plan | Refusal:
    """Return the plan of a host that does not exist yet, or of an image: without what depends on its network cards.

    kernel: without it also without what depends on that.
    """
    hosts = {"image": LockedHost(kernel=kernel)} if kernel else {}
    counts, switches = dict(Counter(gpu.pci_ids[0] for gpu in target.gpus)), bool(target.nvswitches)
    group = LockedGroup(os=target.os.id, arch=target.arch, gpus=counts, nvswitches=switches, hosts=hosts, stack=stack)
    return _plan(group_name(target, counts), group, target, spec, None)


class NoSuchHost(LookupError):
    """The lock has no such host or group."""


def plan(lock: Lock, *, host: str | None = None, group: str | None = None) -> Plan | Refusal:
    """Return the plan of a host or of a group. Exactly one of the two must be given.

    Raises NoSuchHost, or UnknownInput if a lock was edited to a value that is not in the tables.
    """
    name = _group_of(lock, host) if host is not None else (group or "")
    if isinstance(name, RefusedHost):
        return Refusal(conflicts=name.conflicts, unknown=name.kind == "unknown")
    if name not in lock.groups:
        known = ", ".join(lock.groups) or "none"
        raise NoSuchHost(f"the lock has no group {name!r}. It has: {known}")
    locked = lock.groups[name]
    target = target_of_group(locked)
    broken = still_valid(target, locked.stack, lock.spec)
    if broken:
        return Refusal(conflicts=broken)
    return _plan(name, locked, target, lock.spec, host)


def _group_of(lock: Lock, host: str) -> str | RefusedHost:
    if host in lock.refused:
        return lock.refused[host]
    for name, group in lock.groups.items():
        if host in group.hosts:
            return name
    known = ", ".join(sorted({*lock.refused, *(h for g in lock.groups.values() for h in g.hosts)})) or "none"
    raise NoSuchHost(f"the lock has no host {host!r}. It has: {known}. Lock again with its facts.")


def _unplanned(gap: PlanGap, target: Target) -> Refusal:
    needed = Fact(f"{target.os.id} on {target.arch} needs it", "the specification")
    between = (Fact(str(gap), gap.source), needed)
    return Refusal(conflicts=(Conflict(between=between, because=str(gap), source=gap.source, try_=gap.advice),))


def _input(target: Target, stack: StackSet, spec: StackSpec) -> PlanInput:
    return PlanInput(target=target, stack=stack, spec=spec, archive=parts.archive_of_set(target.os, stack))


def _plan(name: str, locked: LockedGroup, target: Target, spec: StackSpec, host: str | None) -> Plan | Refusal:
    try:
        return _complete(name, locked, target, spec, host)
    except PlanGap as gap:
        return _unplanned(gap, target)


def _complete(name: str, locked: LockedGroup, target: Target, spec: StackSpec, host: str | None) -> Plan:
    system = target.os
    stack = locked.stack
    manager: Literal["apt", "dnf"] = "apt" if system.family == "debian" else "dnf"
    wanted = _input(target, stack, spec)
    archive, tuning = wanted.archive, tuning_plan(spec.tuning, locked.arch)
    planned = parts.planned_components(wanted)
    hosts = {host: locked.hosts[host]} if host is not None else locked.hosts
    # Those of hosts whose running kernel is their own.
    kernels = tuple(h.kernel for h in hosts.values() if not any(s.lower().startswith("kernel") for s in h.stand_ins))
    cards = {} if stack.driver.kept else {name: (one.rdma, one.kernel) for name, one in hosts.items()}
    rdma, rdma_reasons = rdma_plan(cards, stack)
    libraries, library_reasons = library_plan(cards, system, memlock=spec.tuning.memlock != LEAVE)
    # NCCL loads them. They belong to the system, so they are not held.
    planned["nccl"] = {**planned["nccl"], "packages": [*planned["nccl"]["packages"], *libraries]}
    engines = tuple(engine for row in COMPONENTS for engine in row.container_engines(wanted))
    modules = kernel_modules(stack, kernels)
    held, kept = spec.kernel_lock == "hold" or bool(modules), bool(stack.driver.kept)
    built = not (modules or kept)
    later = zip(LATER, (engines, tuning, held), strict=True)
    unconfirmed_rows = parts.unconfirmed(wanted)
    rows = list(parts.services(stack, spec))
    simulated = bool(hosts) and all(one.simulated for one in hosts.values())
    units = parts.drop_ins([row["name"] for row in rows], system, simulated=simulated)
    return Plan(
        schema_=SCHEMA,
        group=name,
        hosts=tuple(hosts),
        host=host,
        os={"id": system.os_id, "version": system.version, "family": system.family},
        arch=locked.arch,
        package_manager=manager,
        order=("repository", *parts.roles(planned), *(role for role, there in later if there)),
        stack=stack,
        repositories=tuple(_repositories(wanted)),
        sources="managed" if managed(spec) else None,
        archive=parts.host_sources(system, stack, archive),
        tuning=tuning,
        container_engines=engines or None,
        mok={"key": spec.mok.key, "certificate": spec.mok.certificate} if spec.mok.key else None,
        kernel_lock="hold" if held else None,
        module_stream=parts.module_stream(system, stack),
        components=planned,
        # They would add the public addresses next to those of a mirror.
        prerequisites=() if kept or {EPEL, MANAGED} & set(spec.repositories) else parts.release_packages(system),
        dkms_source=None if kept else _dkms_source(system, locked.arch, spec),
        python=parts.python(system),
        headers=parts.headers(system, kernels) if built else (),
        header_metapackage=parts.header_metapackage(system, kernels, held=held or kept),
        kernel_modules=modules,
        compilers=parts.compilers(system, stack.driver.kernel_module, kernels) if built else (),
        files=(*(one for row in BY_TURN for one in row.files(wanted)), *(file(*row) for row in (*rdma, *units))),
        services=tuple(rows),
        reboot={"when": () if kept else ("nouveau-loaded", "loaded-differs-from-installed", "module-files-changed")},
        expected={key: value for row in COMPONENTS for key, value in row.expected(stack).items()},
        reasons=(
            *(note for row in COMPONENTS for note in row.notes(wanted)),
            *rdma_reasons,
            *library_reasons,
            *(r15_newer_kernel(stack.driver.branch, kernels) if not modules else ()),
            *parts.reasons(unconfirmed_rows),
        ),
        unconfirmed=unconfirmed_rows,
    )


def _repositories(plan: PlanInput) -> list[dict[str, str | None]]:
    """Return NVIDIA's repositories or their mirrors, without the driver's if an archive has the driver."""
    system, arch, spec = plan.system, plan.target.arch, plan.spec
    if managed(spec):
        return []
    table = packages().repositories
    distro = system.repository
    if distro is None:
        advice = "a newer release of the system, or repositories: managed"
        raise PlanGap(f"NVIDIA has no package repository for {system.name}", "cuda-repo", advice)
    if distro not in table.keys:
        advice = "another release of the system, or repositories: managed"
        raise PlanGap(f"the signing key of {distro} is not known", "cuda-repo", advice)
    key = table.keys[distro]
    base = table.cuda_url.format(distro=distro, arch=arch)
    name = "nvidia-cuda" if plan.apt else f"cuda-{distro}-{arch}"
    keyring = table.keyring if plan.apt else None
    pin = key.fingerprint or (f"sha256:{key.sha256}" if key.sha256 else None)
    nvidia = repository(name, base, (f"{base}{key.file}", pin), keyring, table.signed)
    if plan.stack.driver.kept and not plan.apt:
        nvidia["exclude"] = KEPT_EXCLUDE
    found = [_mirrored(nvidia, spec, ("nvidia-cuda", name), distro, arch)] if _of_nvidia(plan) else []
    own = [row for row in (component.repository(plan) for component in COMPONENTS) if row]
    return [*found, *(_mirrored(row, spec, (str(row["name"]),), distro, arch) for row in own)]


def _of_nvidia(plan: PlanInput) -> bool:
    """Whether anything is planned from NVIDIA's folder for the system: with Ubuntu's driver that may be nothing."""
    if plan.archive or not plan.stack.source:
        return not plan.archive
    planned = (row.packages(plan) for row in COMPONENTS if row.folder(plan) == plan.system.repository)
    return any(part["packages"] for part in planned if part)


def _dkms_source(system: OperatingSystem, arch: str, spec: StackSpec) -> dict[str, Any] | None:
    row = parts.epel_row(system, arch)
    omitted = managed(spec) or spec.repositories.get(EPEL, Repository()).url == NONE
    if row is None or system.repository is None or omitted:
        return None
    mirrored = _mirrored(row, spec, (EPEL,), system.repository, arch)
    return {"repository": mirrored, "enable": parts.system_repositories(system, arch)}


def _mirrored(
    repository: dict[str, str | None], spec: StackSpec, names: tuple[str, ...], distro: str, arch: str
) -> dict[str, str | None]:
    """Return the repository with the values of the specification; the later, more specific name takes precedence."""
    result = dict(repository)
    for name in names:
        override = spec.repositories.get(name, Repository())
        # A mirror signs with its own key, so NVIDIA's fingerprint does not apply.
        if override.key_url:
            result["key_fingerprint"] = None
        if override.signed and "signed" in result:
            result["signed"] = override.signed
        for field in ("url", "key_url", "key_fingerprint"):
            value = getattr(override, field)
            if value:
                result[field] = value.replace("{distro}", distro).replace("{arch}", arch)
    if not result["key_fingerprint"]:
        message = f"no fingerprint of the signing key {result['key_url']} is known, so any key would be accepted"
        advice = f"compare it with its publisher's, and set repositories.{names[0]}.key_fingerprint in stack.yml"
        raise PlanGap(message, "cuda-repo", advice)
    if result["kind"] == "apt" and DIGEST in result["key_fingerprint"].lower():
        # apt gets the key without its armor, whose digest would be another.
        message = f"the signing key {result['key_url']} is pinned by a digest, which is possible for dnf alone"
        advice = f"state the fingerprint of the key in repositories.{names[0]}.key_fingerprint in stack.yml"
        raise PlanGap(message, "the specification", advice)
    return result
