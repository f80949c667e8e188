"""What is known of nodes over time: the outside contract of ``gpucheck fleet history``."""

import msgspec

SCHEMA = "gpucheck.history/1"


class NodeHistory(msgspec.Struct, frozen=True, kw_only=True):
    """One node. days: on which something is known of it. bad_days: on which a report named it or it was drained.

    low, high: the 95 % interval of its part of bad days. ``accused``: reports that name it. drained: by gpucheck, or
    set down by Slurm; drained_again: of these, within 30 days after the one before. other_drains: for any other reason,
    which do not count as bad. lemon: its place among the nodes that are worse than the fleet, from 1.
    reasons: the latest first.
    """

    node: str
    days: int
    bad_days: int
    low: float
    high: float
    accused: int = 0
    drained: int = 0
    drained_again: int = 0
    other_drains: int = 0
    lemon: int | None = None
    last_bad: str | None = None
    reasons: tuple[str, ...] = ()


class HistoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes, the worst first. unread: files and lines that are neither a report nor a line of Slurm's accounting."""

    schema: str = SCHEMA
    simulated: bool
    nodes: tuple[NodeHistory, ...]
    unread: tuple[str, ...] = ()
