"""Causes: what is wrong, how to make sure, what to do (causes.yml)."""

from typing import Literal

import msgspec

from gpucheck.knowledge._load import Row, Table, table
from gpucheck.model.finding import Action, Owner, Step

Domain = Literal["gpu", "nvlink", "pcie", "network", "driver", "host", "job"]


class Advice(Row, frozen=True, kw_only=True):
    """One step: do or look are words, change or run a command. do and change alter the host, look and run do not."""

    do: str | None = None
    look: str | None = None
    change: str | None = None
    run: str | None = None

    def __post_init__(self) -> None:
        if sum(text is not None for text in (self.do, self.look, self.change, self.run)) != 1:
            raise ValueError("a step has one of the keys do, look, change, run")

    @property
    def text(self) -> str:
        return self.do or self.look or self.change or self.run or ""

    def as_step(self) -> Step:
        """Return the step; its text has no values."""
        text, changes = self.text.format(), self.do is not None or self.change is not None
        if self.do is not None or self.look is not None:
            return Step(text=text, changes=changes)
        return Step(command=text, changes=changes)


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One cause. meaning: one line; confirm: how to make sure; steps: what to do; source: who reported it.

    decide: a command that shows it and changes nothing.
    action: the first of the steps that changes anything, for programs. owner: who carries it out. domain: what
    is affected.
    """

    meaning: str
    confirm: str
    steps: tuple[Advice, ...]
    action: Action
    owner: Owner
    domain: Domain
    source: str
    decide: str | None = None

    @property
    def advice(self) -> tuple[Step, ...]:
        """The steps as a finding has them; those of a cause have no values."""
        return tuple(step.as_step() for step in self.steps)

    @property
    def remedy(self) -> str:
        """The steps as one text: a step that ends with a colon introduces the next."""
        return "; ".join(step.command or step.text or "" for step in self.advice).replace(":; ", ": ")


class _Causes(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.causes/2"]
    causes: dict[str, Cause]


def causes() -> dict[str, Cause]:
    """Every cause by its key. The keys are an outside contract and are never renamed."""
    return dict(table("causes.yml", _Causes).causes)


class RootCauses(Table, frozen=True, kw_only=True):
    """Which finding about a fault leads.

    evidence: checks by what they look at, nearest to the hardware first. apart: checks whose findings are never part
    of another fault. explains: by cause, the causes that follow from it, and checks whose findings without a cause do.
    """

    schema_: Literal["gpucheck.knowledge.root_causes/1"]
    evidence: dict[str, tuple[str, ...]]
    apart: tuple[str, ...]
    explains: dict[str, tuple[str, ...]]


def root_causes() -> RootCauses:
    """Return the table of what leads and of causes that follow from others."""
    return table("root_causes.yml", RootCauses)


class _Suspects(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.suspects/1"]
    patterns: dict[str, tuple[str, ...]]


def suspects_of(pattern: str) -> tuple[str, ...]:
    """Return the causes that may be behind slow, wrong or hung copies of this pattern, the most frequent first."""
    return table("suspects.yml", _Suspects).patterns[pattern]


class ByDesign(Row, frozen=True, kw_only=True):
    """Why a setting is no fault on such a host."""

    why: str
    source: str


class _ByDesign(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.by_design/1"]
    iommu: dict[str, ByDesign]


def translates_by_design(arch: str) -> str | None:
    """Return why the IOMMU of such a host (``uname -m``) always translates, None if it does not."""
    row = table("by_design.yml", _ByDesign).iommu.get(arch)
    return row.why if row else None
