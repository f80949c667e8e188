"""Evaluate whether NCCL can use InfiniBand or RoCE in this container, or falls back to TCP. Pure functions."""

from collections.abc import Iterator

from gpucheck.checks.host.locked_memory import ENOUGH_MIB, UNLIMITED
from gpucheck.images._finding import finding
from gpucheck.images.probe import ImageManifest, Values
from gpucheck.model import Finding, Verdict

WANTED = "RDMA devices, libibverbs and unlimited locked memory"
GIVE = "docker run --device /dev/infiniband --ulimit memlock=-1 --cap-add IPC_LOCK"


def evaluate_network(values: Values) -> Iterator[Finding]:
    """Yield at most one finding; none without an RDMA device on the host or in the container, or without NCCL."""
    if not isinstance(values.manifest, ImageManifest) or values.manifest.cuda is None or values.simulated:
        return
    own, limit = values.own, values.memlock_bytes
    devices = f"{len(own.rdma)} RDMA devices: {' '.join(own.rdma)}"
    if own.error is not None:
        return
    if not own.rdma:
        if values.rdma_on_host:
            yield finding(
                Verdict.SKIP,
                f"the host has {' '.join(values.rdma_on_host)}, this container no /dev/infiniband",
                WANTED,
                why=f"One host does not need them. For several hosts start the container with {GIVE}.",
            )
    elif own.verbs != "loaded":
        yield finding(
            Verdict.WARN,
            f"{devices}; libibverbs.so.1 does not load",
            WANTED,
            why="NCCL loads this library at run time; without it, it uses TCP between hosts and reports no error",
            fix="install libibverbs1 ibverbs-providers librdmacm1 in the image; the CUDA variants contain them",
            evidence=(f"dlopen: {own.verbs}",),
        )
    elif limit is None:
        yield finding(
            Verdict.UNKNOWN,
            f"{devices}; locked memory limit unknown: RLIMIT_MEMLOCK cannot be read",
            WANTED,
            why="RDMA registers its buffers as locked memory",
            fix="ulimit -l",
        )
    elif limit != UNLIMITED and limit >> 20 < ENOUGH_MIB:
        yield finding(
            Verdict.WARN,
            f"{devices}; locked memory limit {limit >> 10} KiB",
            WANTED,
            cause="memlock-too-small",
            why="RDMA registers its buffers as locked memory: NCCL over InfiniBand or RoCE fails with ENOMEM",
            fix=f"start the container with --ulimit memlock=-1 ({GIVE})",
        )
    else:
        yield finding(Verdict.PASS, f"{devices}, libibverbs loads, locked memory not limited", WANTED)
