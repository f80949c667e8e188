"""stack.lock.yml: the resolved set of every group of hosts, the only source of versions.

Playbooks, images and verify read it. Hosts are grouped by operating system, architecture and GPU set. The text depends
only on the specification, the facts and the tables, not on the order of the input or the time.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from gpucheck.foreign import bounded, read_text
from gpucheck.foreign.documents import parse
from gpucheck.knowledge import GpuModel, generation_of, gpu_by_pci_id, tables
from gpucheck.stack.components import COMPONENTS, exact_spec
from gpucheck.stack.components.driver import WAY, present_driver
from gpucheck.stack.facts import HostFacts, find_os, normal_arch
from gpucheck.stack.rdma import Rdma, rdma_of_facts
from gpucheck.stack.resolve import resolve_target
from gpucheck.stack.spec import StackSpec, check_value
from gpucheck.stack.stack_set import StackSet
from gpucheck.stack.types import KEEP, Conflict, Fact, NotProvisioned, Refusal, Target, UnknownInput


class RefusedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host without a set. kind: impossible = facts conflict; unknown = its GPU or system is not in the tables."""

    kind: Literal["impossible", "unknown"]
    conflicts: tuple[Conflict, ...]


def unknown_gpu(host: str, device: str) -> str:
    generation = None
    if len(device) == 4 and all(letter in "0123456789abcdef" for letter in device):
        generation = generation_of(device)
    looks = f"; its id is in the range of {generation.name}" if generation else ""
    last = generation.last_driver_branch if generation else None
    ends = f", which ends at driver branch {last}" if last else ""
    return (
        f"{host} has a GPU with PCI id 10de:{device}, which is not in the tables{looks}{ends}. "
        "Add it to gpucheck/knowledge/gpus.yml with its source, or remove the host from the inventory."
    )


def rejected(host: str, kind: Literal["impossible", "unknown"], because: str, seen: str, try_: str) -> RefusedHost:
    """Return why a host has no set. seen: what its facts show."""
    between = (Fact(f"{host} is in the inventory of GPU hosts", "the inventory"), Fact(seen, "its facts"))
    conflict = Conflict(between=between, because=because, source="its facts", try_=try_)
    return RefusedHost(kind=kind, conflicts=(conflict,))


def unreadable(host: str, message: str) -> RefusedHost:
    try_ = "read the facts again; if they stay invalid, check the host, which writes them"
    return rejected(host, "unknown", f"the facts of {host} cannot be read", message, try_)


MOST_GPUS = 64
MOST_BYTES = 64 << 20
"""Of a lock of 80,000 hosts; the values are bounded as well."""


class LockError(Exception):
    """A lock file cannot be used. The message names the file, the line and what to do."""


class LockedHost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of one host that the plan needs. simulated and ``stand_ins``: see HostFacts.

    rdma: whether it has RDMA cards, and whether OFED or the kernel's modules drive them.
    """

    kernel: str
    simulated: bool = False
    stand_ins: tuple[str, ...] = ()
    rdma: Rdma = "none"


class LockedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts with the same set. gpus: PCI device id -> count; nvswitches: whether there are any."""

    os: str
    arch: Literal["x86_64", "sbsa"]
    gpus: dict[str, int]
    nvswitches: bool
    hosts: dict[str, LockedHost]
    stack: StackSet


class Lock(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    """The lock, ordered by group and host name. tables: the date of the tables that it was made from."""

    schema_: Literal["gpucheck.lock/1"] = "gpucheck.lock/1"
    tables: str
    spec: StackSpec
    groups: dict[str, LockedGroup]
    refused: dict[str, RefusedHost]


def lock(spec: StackSpec, facts: Iterable[HostFacts], previous: Lock | None = None) -> Lock:
    """Resolve every group of hosts.

    previous: an older lock; a group keeps its set as long as its specification and hosts are the same and no rule
    forbids it, so that new tables alone change no versions. A host without a set is listed as unsupported; the
    others are locked.
    Raises LockError if two facts files describe the same host.
    """
    members: dict[str, tuple[Target, dict[str, int], dict[str, LockedHost]]] = {}
    refused: dict[str, RefusedHost] = {}
    seen: set[str] = set()
    for host in sorted(facts, key=lambda f: f.host):
        if host.host in seen:
            raise LockError(f"two facts files describe host {host.host!r}: give each host once")
        seen.add(host.host)
        found = _accepted(host, spec)
        if isinstance(found, RefusedHost):
            refused[host.host] = found
            continue
        target, counts = found
        _, _, found_hosts = members.setdefault(group_name(target, counts), (target, counts, {}))
        found_hosts[host.host] = LockedHost(
            kernel=host.kernel, simulated=host.simulated, stand_ins=host.stand_ins, rdma=rdma_of_facts(host)
        )
    groups: dict[str, LockedGroup] = {}
    for name in sorted(members):
        target, counts, hosts = members[name]
        stack = _kept(previous, name, spec, target) or resolve_target(target, spec)
        if isinstance(stack, Refusal):
            kind: Literal["impossible", "unknown"] = "unknown" if stack.unknown else "impossible"
            refused |= {host: RefusedHost(kind=kind, conflicts=stack.conflicts) for host in hosts}
            continue
        switches = bool(target.nvswitches)
        groups[name] = LockedGroup(
            os=target.os.id, arch=target.arch, gpus=counts, nvswitches=switches, hosts=hosts, stack=stack
        )
    as_of = tables.operating_systems().as_of
    return Lock(tables=as_of, spec=spec, groups=groups, refused=dict(sorted(refused.items())))


def _accepted(host: HostFacts, spec: StackSpec) -> tuple[Target, dict[str, int]] | RefusedHost:
    name, runs = host.host, f"{host.host} runs {host.os.name or f'{host.os.id} {host.os.version}'} on {host.arch}"
    try:
        target, counts = target_of_facts(host)
    except NotProvisioned as problem:
        return rejected(name, "impossible", problem.because, runs, problem.advice)
    except UnknownInput as problem:
        return rejected(name, "unknown", str(problem), runs, "remove the host from the inventory, or extend the tables")
    if not target.gpus:
        because = f"no NVIDIA GPU found on {name}: its PCI bus shows no NVIDIA display or 3D controller"
        try_ = "remove the host from the inventory; or check why the GPU is not detected: power, riser, slot, BIOS"
        return rejected(name, "impossible", because, f"{name} shows no NVIDIA GPU on its PCI bus", try_)
    if host.vgpu_guest:
        because = "the driver of a vGPU guest has to match the hypervisor's, and NVIDIA's repositories do not carry it"
        shown = f"{name} runs on a vGPU: its PCI configuration has the vGPU mark"
        try_ = "install the guest driver from the administrator of the hypervisor, and remove the host from group gpu"
        return rejected(name, "impossible", because, shown, try_)
    if spec.driver != KEEP:
        return target, counts
    present = present_driver(host)
    if isinstance(present, str):
        return rejected(name, "impossible", f"driver: keep is not possible: {present}", present, WAY)
    return msgspec.structs.replace(target, present=present), counts


def target_of_facts(host: HostFacts) -> tuple[Target, dict[str, int]]:
    """Return the target of a host, and its GPUs counted by PCI device id. Raises UnknownInput."""
    counts = dict(Counter(sorted(gpu.device_id.lower() for gpu in host.gpus)))
    models, system = _models(host.host, counts), find_os(f"{host.os.id}-{host.os.version}")
    # Only the presence of switches matters, not their number.
    switches = 1 if host.nvswitches else 0
    return Target(gpus=models, os=system, arch=normal_arch(host.arch), nvswitches=switches), counts


def _models(where: str, counts: dict[str, int]) -> tuple[GpuModel, ...]:
    models = []
    for device, count in counts.items():
        model = gpu_by_pci_id(device)
        if model is None:
            raise UnknownInput(unknown_gpu(where, device))
        models += [model] * count
    return tuple(models)


def group_name(target: Target, counts: dict[str, int]) -> str:
    """Return ``ubuntu-22.04-x86_64-15f8x2``, with a suffix if the board is not the usual one for these GPUs."""
    gpus = "+".join(f"{device}x{count}" for device, count in counts.items())
    suffix = "".join(row.group_suffix(target) for row in COMPONENTS)
    return f"{target.os.id}-{target.arch}-{gpus}{suffix}"


def target_of_group(group: LockedGroup) -> Target:
    """Return the target that a group was resolved for. Raises UnknownInput if its lines were edited."""
    models = _models("the lock", group.gpus)
    system = next((s for s in tables.operating_systems().systems if s.id == group.os), None)
    if system is None:
        raise UnknownInput(f"operating system {group.os!r} in the lock is not known")
    own = group.stack.driver if group.stack.driver.kept else None
    return Target(gpus=models, os=system, arch=group.arch, nvswitches=int(group.nvswitches), present=own)


def still_valid(target: Target, stack: StackSet, spec: StackSpec) -> tuple[Conflict, ...]:
    """Return the conflicts of a set with the rules; empty if there are none. Edited sets are evaluated too."""
    exact = msgspec.structs.replace(spec, **exact_spec(stack))
    found = resolve_target(target, exact)
    if isinstance(found, Refusal):
        return found.conflicts
    edited = (row.edited(stack, found) for row in COMPONENTS)
    return tuple(conflict for conflict in edited if conflict)[:1]


def _kept(previous: Lock | None, name: str, spec: StackSpec, target: Target) -> StackSet | None:
    if previous is None or name not in previous.groups:
        return None
    stack, same = previous.groups[name].stack, {key: getattr(spec, key) for key in NO_VERSIONS}
    if msgspec.structs.replace(previous.spec, **same) != spec or still_valid(target, stack, spec):
        return None
    return stack


# Settings that do not affect versions: if they change, the lock keeps its versions.
NO_VERSIONS = (
    *("repositories", "tuning", "imex", "container_engines", "module_options", "mok", "driver_extra", "kernel_lock"),
)


def write_lock(value: Lock) -> str:
    """Return the lock as YAML text; equal locks give equal bytes."""
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    head = "# Made by gpucheck stack lock. Do not edit: change stack.yml and lock again.\n"
    body: str = yaml.dump(msgspec.to_builtins(value), Dumper=dumper, sort_keys=False, width=110, allow_unicode=True)
    return head + body


def read_lock(text: str, name: str) -> Lock:
    """Return the lock in YAML text. Raises LockError naming ``name`` and, as far as it is known, the line."""
    try:
        found = parse(text, name, Lock)
        for group, row in found.groups.items():
            _refuse_edited(f"{name}: {group}", row)
    except ValueError as error:
        raise LockError(
            f"{error}. Make a lock: gpucheck stack lock --spec stack.yml --facts FILE -o stack.lock.yml"
        ) from None
    return found


def _refuse_edited(where: str, group: LockedGroup) -> None:
    """Raise ValueError for a value that gpucheck never writes: a count of GPUs, a version."""
    try:
        int(group.stack.driver.branch)
        for key, value in exact_spec(group.stack).items():
            check_value(key, value)
    except ValueError as error:
        raise ValueError(f"{where}: {bounded(str(error))}") from None
    for device, count in group.gpus.items():
        if not 0 < count <= MOST_GPUS:
            raise ValueError(f"{where}: {count} GPUs of {device}")


def read_lock_file(path: Path) -> Lock:
    """Return the lock in a file. Raises LockError, and UnreadableInput if the file has no text."""
    return read_lock(
        read_text(path, MOST_BYTES, "Make a lock: gpucheck stack lock --spec stack.yml --facts FILE"), str(path)
    )
