"""Shared memory: is /dev/shm large enough for NCCL and data loaders?

Source: statvfs of /dev/shm. Containers get 64 MiB by default, with which NCCL fails to extend its segments and data
loaders die of a bus error.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.model import Check, Finding, Host, Limits
from gpucheck.model.about import About

NAME = "shared-memory"
MIB = 1 << 20
# What a container gets when nobody asks, with some room; NVIDIA's containers ask for 1 GiB.
TOO_SMALL = 128 * MIB
ENOUGH = 1024 * MIB
# A rank's segments take some ten MiB for each peer; below this a full /dev/shm fails the next job.
FREE = 256 * MIB


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of this process, and the kind of container where there is one."""

    limits: Limits
    container: str | None


def probe(host: Host) -> Values:
    """Ask the kernel."""
    return Values(limits=host.limits(), container=host.system().container)


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for the host."""
    size, free = values.limits.shm_bytes, values.limits.shm_free_bytes
    about = About(check=NAME, unit="MiB", evidence=(f"statvfs /dev/shm: {size} bytes, {free} free",))
    if size is None:
        why = "there is no shared memory file system, or it cannot be asked"
        yield about.unknown(why, "mount -t tmpfs tmpfs /dev/shm", wanted=ENOUGH // MIB)
        return
    remedy = (
        "run the container with --shm-size=1g or --ipc=host"
        if values.container
        else "mount -o remount,size=50% /dev/shm"
    )
    if size < TOO_SMALL:
        why = "NCCL cannot extend its shared memory segments and data loaders die of a bus error"
        yield about.fails(size // MIB, ENOUGH // MIB, why, remedy, "shm-too-small")
    elif size < ENOUGH:
        why = "enough for two ranks, too little for eight with data loaders"
        yield about.warns(size // MIB, ENOUGH // MIB, why, remedy, "shm-too-small")
    elif free is not None and free < FREE:
        why = "something left its segments behind, so that the next job finds no room"
        fix = "ls -lS /dev/shm, and remove what no process uses"
        yield about.warns(free // MIB, FREE // MIB, why, fix, "shm-too-small", "likely")
    else:
        yield about.passes(size // MIB, ENOUGH // MIB)


CHECK = Check(NAME, frozenset({"software", "limits", "quick"}), probe, evaluate)
