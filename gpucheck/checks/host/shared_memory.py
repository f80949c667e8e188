"""Shared memory: is /dev/shm large enough for NCCL and data loaders?

Source: statvfs of /dev/shm. Containers get 64 MiB by default, with which NCCL fails to extend its segments and data
loaders die of a bus error.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import quick_check
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding
from gpucheck.model.facts import Facts

NAME = "shared-memory"
MIB = 1 << 20
TOO_SMALL, ENOUGH, FREE = 128 * MIB, 1024 * MIB, 256 * MIB


def evaluate(facts: Facts) -> Iterator[Finding]:
    size, free = facts.limits.shm_bytes, facts.limits.shm_free_bytes
    if size is None or free is None:
        yield Subject(check=NAME).unknown("host.shm-unreadable")
        return
    subject = Subject(check=NAME, unit="MiB", evidence=(f"statvfs /dev/shm: {size} bytes, {free} free",))
    if size < TOO_SMALL:
        code = "host.shm-too-small-container" if facts.system.container else "host.shm-too-small"
        yield subject.fails(code, size // MIB, ENOUGH // MIB)
    elif size < ENOUGH:
        code = "host.shm-for-two-ranks-container" if facts.system.container else "host.shm-for-two-ranks"
        yield subject.warns(code, size // MIB, ENOUGH // MIB)
    elif free < FREE:
        yield subject.warns("host.shm-almost-full", f"{free // MIB} MiB free", f"{FREE // MIB} MiB")
    else:
        yield subject.passes(size // MIB)


LIMITS = (
    f"FAIL below {TOO_SMALL // MIB} MiB: what a container gets by default, with a margin",
    f"WARN below {ENOUGH // MIB} MiB: what NVIDIA's containers request",
    f"WARN with less than {FREE // MIB} MiB free: a rank's segments take some ten MiB for each peer",
)
CHECK = quick_check(NAME, "software limits", evaluate, ("limits", "system"), limits=LIMITS)
