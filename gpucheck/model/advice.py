"""How to use a topology well: which GPUs belong in one job, and where its processes should run."""

import msgspec


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A good set of `size` GPUs, by index.

    slowest: class of its worst pair. slowest_gb_s: what that pair should reach, None where it is not known.
    equals: how many sets are as good.
    environment: the shell assignment that gives a job these GPUs.
    """

    size: int
    gpus: tuple[int, ...]
    slowest: str | None = None
    slowest_gb_s: float | None = None
    numa_nodes: tuple[int, ...] = ()
    equals: int = 1
    environment: str


class Pinning(msgspec.Struct, frozen=True, kw_only=True):
    """Where the process of one GPU should run. command: what to put before it. nics: labels of the nearest cards."""

    gpu: int
    numa_node: int | None = None
    cpus: str | None = None
    command: str
    nics: tuple[str, ...] = ()


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """asymmetries: what sets some GPUs or pairs apart from the others, one sentence each."""

    best: tuple[Choice, ...] = ()
    pinning: tuple[Pinning, ...] = ()
    asymmetries: tuple[str, ...] = ()
