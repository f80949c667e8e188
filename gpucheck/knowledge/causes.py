"""Causes: what is wrong, how to make sure, what to do (causes.yml)."""

from typing import Literal

import msgspec

from gpucheck.knowledge._load import Table, table
from gpucheck.knowledge.advice import Advice, step_of
from gpucheck.model.finding import Action, Owner, Step

Domain = Literal["gpu", "nvlink", "pcie", "network", "driver", "host", "job"]


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
        return tuple(step_of(step, {}) for step in self.steps)


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
