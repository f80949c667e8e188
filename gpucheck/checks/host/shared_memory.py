"""Shared memory: is /dev/shm large enough for NCCL and data loaders?

Source: statvfs of /dev/shm. Containers get 64 MiB by default, with which NCCL fails to extend its segments and data
loaders die of a bus error.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.model import Check, Finding, Host, Limits
from gpucheck.model.finding.about import About

NAME = "shared-memory"
MIB = 1 << 20
# What a container gets by default, with a margin; NVIDIA's containers request 1 GiB.
TOO_SMALL = 128 * MIB
ENOUGH = 1024 * MIB
# A rank's segments take some ten MiB for each peer; below this a full /dev/shm fails the next job.
FREE = 256 * MIB


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of this process, and the kind of container if this is one."""

    limits: Limits
    container: str | None


def probe(host: Host) -> Values:
    return Values(limits=host.limits(), container=host.system().container)


def evaluate(values: Values) -> Iterator[Finding]:
    size, free = values.limits.shm_bytes, values.limits.shm_free_bytes
    if size is None or free is None:
        why = "shared memory size unknown: /dev/shm is missing or cannot be read"
        yield About(check=NAME).unknown(why, "df /dev/shm; if it is missing: mount -t tmpfs tmpfs /dev/shm")
        return
    about = About(check=NAME, unit="MiB", evidence=(f"statvfs /dev/shm: {size} bytes, {free} free",))
    remedy = (
        "run the container with --shm-size=1g or --ipc=host"
        if values.container
        else "mount -o remount,size=50% /dev/shm"
    )
    if size < TOO_SMALL:
        why = "Shared memory is too small: NCCL cannot extend its segments, and data loaders end with SIGBUS."
        yield about.fails(size // MIB, ENOUGH // MIB, why, remedy, "shm-too-small")
    elif size < ENOUGH:
        why = "Shared memory is large enough for two ranks, and too small for eight with data loaders."
        yield about.warns(size // MIB, ENOUGH // MIB, why, remedy, "shm-too-small")
    elif free < FREE:
        why = "Shared memory is almost full: leftover segments leave no space for the next job."
        fix = "ls -lS /dev/shm, and remove the files that no process uses"
        yield about.warns(f"{free // MIB} MiB free", f"{FREE // MIB} MiB", why, fix, "shm-too-small", "likely")
    else:
        yield about.passes(size // MIB)


CHECK = Check(NAME, frozenset({"software", "limits", "quick"}), probe, evaluate)
