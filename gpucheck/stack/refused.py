"""Unsupported hosts: those without a set, each with its facts and a resolution. Other hosts continue."""

from typing import Literal

import msgspec

from gpucheck.knowledge import generation_of
from gpucheck.stack.facts import HostFacts
from gpucheck.stack.types import Conflict, Fact


class RefusedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host without a set. kind: impossible = facts conflict; unknown = its GPU or system is not in the tables."""

    kind: Literal["impossible", "unknown"]
    conflicts: tuple[Conflict, ...]


def unknown_gpu(host: str, device: str) -> str:
    """Return the message about a GPU that is not in the tables. host: the host with this GPU."""
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


def unknown(host: HostFacts, message: str) -> RefusedHost:
    """Return a host whose GPU or system is not in the tables."""
    fact = Fact(f"{host.host} runs {host.os.name or host.os.id + ' ' + host.os.version} on {host.arch}", "its facts")
    between = (fact, Fact(message, "the tables"))
    try_ = "remove the host from the inventory, or extend the tables"
    conflict = Conflict(between=between, because=message, source="the tables", try_=try_)
    return RefusedHost(kind="unknown", conflicts=(conflict,))


def unreadable(host: str, message: str) -> RefusedHost:
    """Return a host whose facts cannot be read."""
    between = (Fact(f"{host} is in the inventory of GPU hosts", "the inventory"), Fact(message, "its facts"))
    try_ = "read the facts again; if they stay invalid, check the host, which writes them"
    conflict = Conflict(between=between, because=f"the facts of {host} cannot be read", source="its facts", try_=try_)
    return RefusedHost(kind="unknown", conflicts=(conflict,))


def no_gpu(host: HostFacts) -> RefusedHost:
    """Return a host without an NVIDIA GPU."""
    because = f"no NVIDIA GPU found on {host.host}: its PCI bus shows no NVIDIA display or 3D controller"
    try_ = "remove the host from the inventory; or check why the GPU is not detected: power, riser, slot, BIOS"
    return _impossible(host, because, f"{host.host} shows no NVIDIA GPU on its PCI bus", try_)


def vgpu_guest(host: HostFacts) -> RefusedHost:
    """Return a virtual machine with a vGPU."""
    because = "the driver of a vGPU guest has to match the hypervisor's, and NVIDIA's repositories do not carry it"
    seen = f"{host.host} runs on a vGPU: its PCI configuration has the vGPU mark"
    try_ = "install the guest driver from the administrator of the hypervisor, and remove the host from group gpu"
    return _impossible(host, because, seen, try_)


def _impossible(host: HostFacts, because: str, seen: str, try_: str) -> RefusedHost:
    between = (Fact(f"{host.host} is in the inventory of GPU hosts", "the inventory"), Fact(seen, "its facts"))
    conflict = Conflict(between=between, because=because, source="its facts", try_=try_)
    return RefusedHost(kind="impossible", conflicts=(conflict,))
