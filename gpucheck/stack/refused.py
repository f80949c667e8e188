"""Hosts that get no set, each with its facts and the way out; the others of the inventory go on."""

from typing import Literal

import msgspec

from gpucheck.knowledge import generation_of
from gpucheck.stack.facts import HostFacts
from gpucheck.stack.types import Conflict, Fact


class RefusedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host without a set. kind: impossible = facts clash; unknown = the tables do not know its GPU or system."""

    kind: Literal["impossible", "unknown"]
    conflicts: tuple[Conflict, ...]


def unknown_gpu(host: str, device: str) -> str:
    """Why a GPU that the tables do not know cannot be served. host: who has it."""
    generation = None
    if len(device) == 4 and all(letter in "0123456789abcdef" for letter in device):
        generation = generation_of(device)
    looks = f"; by its number it is {generation.name}" if generation else ""
    last = generation.last_driver_branch if generation else None
    ends = f", which ends at driver branch {last}" if last else ""
    return (
        f"{host} has a GPU with PCI id 10de:{device}, which is not in the tables{looks}{ends}. "
        "Add it to gpucheck/knowledge/gpus.yml with its source, or take the host out."
    )


def unknown(host: HostFacts, message: str) -> RefusedHost:
    """A host whose GPU or system the tables do not know."""
    fact = Fact(f"{host.host} runs {host.os.name or host.os.id + ' ' + host.os.version} on {host.arch}", "its facts")
    between = (fact, Fact(message, "the tables"))
    try_ = "take the host out of the inventory, or extend the tables"
    conflict = Conflict(between=between, because=message, source="the tables", try_=try_)
    return RefusedHost(kind="unknown", conflicts=(conflict,))


def unreadable(host: str, message: str) -> RefusedHost:
    """A host whose facts cannot be read."""
    between = (Fact(f"{host} is to get an NVIDIA stack", "the inventory"), Fact(message, "its facts"))
    try_ = "read the host again; if its facts stay like this, look at the host: they are written by it"
    conflict = Conflict(between=between, because=f"the facts of {host} cannot be read", source="its facts", try_=try_)
    return RefusedHost(kind="unknown", conflicts=(conflict,))


def no_gpu(host: HostFacts) -> RefusedHost:
    """A host without an NVIDIA GPU."""
    because = f"no NVIDIA GPU found on {host.host}: its PCI bus shows no NVIDIA display or 3D controller"
    try_ = "take the host out of the inventory; or look why the card is not seen: power, riser, slot, BIOS"
    return _impossible(host, because, f"{host.host} shows no NVIDIA GPU on its PCI bus", try_)


def vgpu_guest(host: HostFacts) -> RefusedHost:
    """A virtual machine that has a share of a GPU."""
    because = "the driver of a vGPU guest has to match the hypervisor's, and NVIDIA's repositories do not carry it"
    seen = f"{host.host} runs on a vGPU: its PCI configuration bears the vGPU mark"
    try_ = "install the guest driver that the hypervisor's administrator gives out, and take the host out of group gpu"
    return _impossible(host, because, seen, try_)


def _impossible(host: HostFacts, because: str, seen: str, try_: str) -> RefusedHost:
    between = (Fact(f"{host.host} is to get an NVIDIA stack", "the inventory"), Fact(seen, "its facts"))
    conflict = Conflict(between=between, because=because, source="its facts", try_=try_)
    return RefusedHost(kind="impossible", conflicts=(conflict,))
