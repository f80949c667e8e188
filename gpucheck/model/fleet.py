"""A fleet: one row per host, and what only the comparison of hosts shows. The contract of ``gpucheck fleet``."""

from typing import Literal

import msgspec

from gpucheck.model.finding import Finding, Verdict
from gpucheck.printable import some

SCHEMA = "gpucheck.fleet/1"

Level = Literal["host", "gpu", "pair"]


class HostMetric(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One metric of one host, reduced so that a million copies fit into a fleet. The unit is in the metric's name.

    n: numbers it was made of. host: their mean without the highest and lowest quarter (of 1 or 2 numbers: the mean).
    gpu, pair: the worst GPU's and the worst pair's mean, and which one it was; None where the numbers name none.
    low: the lower limit by the model of the host, None if unknown.
    """

    n: int
    host: float
    gpu: float | None = None
    gpu_at: str | None = None
    pair: float | None = None
    pair_at: str | None = None
    low: float | None = None


class FleetRow(msgspec.Struct, frozen=True, kw_only=True):
    """One host of the fleet.

    gpus: models with counts, as text. gpu_count: how many. problems: what is not a pass, worst first.
    gpu_index: NVML's index of each GPU by bus id.
    partial: the report is that of a session with some of the GPUs, as a step of Slurm or a container.
    not_proven: as in Report.
    group: GPU models and driver branch; hosts of one group are compared with each other.
    attributes: what a host has in common with others, by name: ``kernel``, ``bios``, ``rack``, ``uplink``, ...
    metrics: by name, ``p2p.matrices.p2p_uni_gb_s[NV18]``.
    digests: of computed results, by bus id (``host`` for trainings) and operation, which names what must be equal to
    compare it.
    host: as its file or the inventory calls it. stated: the name in its own report, where that is another.
    source: the file or stream it came from. digest: of the report's bytes, to distinguish reports of one host.
    """

    host: str
    verdict: Verdict
    simulated: bool = False
    simulation: str | None = None
    system: str | None = None
    driver: str | None = None
    gpus: str | None = None
    training: str | None = None
    started: str | None = None
    seconds: float | None = None
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    problems: tuple[Finding, ...] = ()
    stand_ins: tuple[str, ...] = ()
    gpu_count: int = 0
    gpu_uuids: tuple[str, ...] = ()
    gpu_index: dict[str, int] = msgspec.field(default_factory=dict)
    partial: bool = False
    not_proven: tuple[str, ...] = ()
    group: str | None = None
    attributes: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    metrics: dict[str, HostMetric] = msgspec.field(default_factory=dict)
    digests: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    source: str | None = None
    digest: str | None = None
    stated: str | None = None

    @property
    def models(self) -> str | None:
        """Return the GPU models, which the group begins with."""
        return self.group and self.group.rpartition(", driver ")[0]


class FleetProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Something about the reports themselves, not about a GPU: what, of which host or file, in a whole sentence."""

    kind: Literal["unreadable", "missing", "duplicate", "conflict", "clock", "stale", "name", "partial"]
    subject: str
    text: str


class MetricGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One metric over one group of hosts.

    median, sigma: of the hosts' own values, sigma estimated from the median absolute deviation, outliers left out.
    low, high: the smallest and largest host. counts: a histogram of the hosts' values, equal bins from low to high.
    basis: ``fleet`` compared with each other, ``model`` too few hosts, so compared with what the machine should reach.
    """

    group: str
    metric: str
    hosts: int
    median: float
    sigma: float
    low: float
    high: float
    counts: tuple[int, ...]
    basis: Literal["fleet", "model"]


class Outlier(msgspec.Struct, frozen=True, kw_only=True):
    """An outlier: a host and its metric. at: the GPU or pair that differs, None for the entire host.

    normal: what the group has at the same level. percent: how far off, negative is below. z: in robust deviations,
    None where it was compared with the model of the machine.
    """

    host: str
    group: str
    metric: str
    level: Level
    at: str | None
    value: float
    normal: float
    percent: float
    z: float | None


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one operation on equal data, compared by digest. on: models and versions, equal for all of them.

    results: of GPUs, or of trainings, on so many hosts. equal: results with the digest of the majority, 0 without one.
    outcome: ``outlier`` results that no other host has, on the hosts outliers; ``several`` hosts agree on another
    digest, as other software causes; ``undecided`` there is no majority; ``single`` there is nothing to compare.
    """

    operation: str
    on: str
    results: int
    hosts: int
    equal: int
    outcome: Literal["equal", "outlier", "several", "undecided", "single"]
    outliers: tuple[str, ...] = ()


class DriftValue(msgspec.Struct, frozen=True, kw_only=True):
    """One value of an attribute, how many hosts have it, and the first of them by name."""

    value: str
    hosts: int
    names: tuple[str, ...]


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """An attribute in which equal hosts differ. scope: which hosts. values: commonest first."""

    attribute: str
    scope: str
    values: tuple[DriftValue, ...]


class CommonCause(msgspec.Struct, frozen=True, kw_only=True):
    """A common factor of unhealthy hosts. An association, which names where to check first and proves nothing.

    sign: what is wrong with them. attributes: ``name = value``; several if they are not distinguishable: the same hosts
    have them. ``sick``: hosts with it. ``sick_with``, others_with: those with the attribute; others: hosts without the
    sign. p: one-sided Fisher exact test, multiplied by the number of associations tried (Bonferroni).
    """

    sign: str
    attributes: tuple[str, ...]
    sick: int
    sick_with: int
    others: int
    others_with: int
    p: float
    text: str


CHANGES = 5  # of a host that are named, of each kind


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one host since the previous merge. appeared, left: what is wrong now, and what no longer is."""

    host: str
    kind: Literal["new", "gone", "fixed", "better", "worse", "broken"]
    before: Verdict | None
    after: Verdict | None
    appeared: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    text: str = ""

    def words(self) -> str:
        """Return what became of it, as the rest of a sentence that begins with its name."""
        if self.after is None:
            return "has no report any more."
        if self.before is None:
            return "was not there before."
        before, after = self.before.name, self.after.name
        parts = [f"was {before}, is {after}." if before != after else f"is still {after}."]
        for label, signs in (("New:", self.appeared), ("Gone:", self.left)):
            if signs:
                parts.append(f"{label} {some(signs, CHANGES)}.")
        return " ".join(parts)


class FleetReport(msgspec.Struct, frozen=True, kw_only=True):
    """The merged report. counts: hosts by verdict. started: of the newest report. simulated: any of them is."""

    schema: str = SCHEMA
    verdict: Verdict
    simulated: bool
    hosts: tuple[FleetRow, ...]
    counts: dict[str, int]
    started: str | None = None
    problems: tuple[FleetProblem, ...] = ()
    metrics: tuple[MetricGroup, ...] = ()
    outliers: tuple[Outlier, ...] = ()
    agreements: tuple[Agreement, ...] = ()
    drift: tuple[Drift, ...] = ()
    causes: tuple[CommonCause, ...] = ()
    changes: tuple[Change, ...] = ()


# What is known of nodes over time: the outside contract of ``gpucheck fleet history``.
HISTORY_SCHEMA = "gpucheck.history/1"


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

    schema: str = HISTORY_SCHEMA
    simulated: bool
    nodes: tuple[NodeHistory, ...]
    unread: tuple[str, ...] = ()
