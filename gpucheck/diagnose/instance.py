"""A cause made concrete on a machine: what it changes, how likely it is, and how a finding words it."""

from dataclasses import dataclass, field
from typing import Literal

from gpucheck.diagnose.paths import Pair
from gpucheck.model.finding.verdict import Verdict

Way = Literal["direct", "staged", "redirected", "translated", "poor", "nvlink"]
Link = tuple[int | None, int | None]
"""Generation and width."""


@dataclass(frozen=True)
class Change:
    """What an Instance changes. links: GPU -> its link; parts: GPU -> part of its link's rate that is left.

    uplinks: group of GPUs -> raw GB/s of their way up. ways: how copies of a pair go. nvlinks: pair -> links in use.
    odd: what follows no prediction: a pair, an ordered pair as ("way", i, j), a GPU as ("gpu", i), ("host",); host
    copies of all GPUs as ("memory",), of one as ("memory", i); the sum of a pair as ("both", i, j).
    ``symptoms``: probability of other readings: ``wrong data``, ``hang``, ``hang with P2P off``, ``damage zeros`` ...
    """

    links: dict[int, Link] = field(default_factory=dict)
    parts: dict[int, float] = field(default_factory=dict)
    uplinks: dict[frozenset[int], float] = field(default_factory=dict)
    ways: dict[Pair, Way] = field(default_factory=dict)
    nvlinks: dict[Pair, int] = field(default_factory=dict)
    odd: frozenset[tuple[object, ...]] = frozenset()
    symptoms: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A hypothesis made concrete: this cause, here, this much.

    prior: odds before any number is seen. excludes: instances with the same word cannot both hold. direct: a register,
    counter or return code names it. verdict: of the finding where it holds; why, seen, wanted, fix, evidence: words.
    decide: the reading that would show it, and how to take it.
    """

    cause: str | None
    subject: str = "host"
    prior: float
    change: Change = field(default_factory=Change)
    excludes: str
    verdict: Verdict = Verdict.FAIL
    why: str
    decide: str
    seen: str = ""
    wanted: str = ""
    fix: str = ""
    evidence: tuple[str, ...] = ()
    pairs: tuple[Pair, ...] = ()
    direct: bool = False
    check: str = "p2p-bandwidth"
