"""The outside contract of ``gpucheck isolate`` and ``gpucheck gate``. GB/s is 10**9 bytes per second."""

from typing import Literal

import msgspec

from gpucheck.model.answer import Answer
from gpucheck.model.finding import Verdict

SCHEMA = "gpucheck.isolation/1"

# done: complete and exact. wrong: elements differed. hung: no end by the deadline. failed: a rank ended with an error.
# silent: a host did not start its part. unreadable: the answer is cut off or not understood, and states nothing.
State = Literal["done", "wrong", "hung", "failed", "silent", "unreadable"]


class GroupTest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One collective between hosts. busbw_gb_s: of the large message; latency_us: of the small one.

    nics: GB/s through each network card alone, where that was asked for. detail: what a failed test printed.
    """

    nodes: tuple[str, ...]
    state: State
    busbw_gb_s: float | None = None
    latency_us: float | None = None
    nics: dict[str, float] = {}
    detail: str = ""


class IsolatedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node. measured: GB/s of its tests in the order of the rounds, None where one had no number."""

    name: str
    verdict: Verdict
    cause: str | None = None
    measured: tuple[float | None, ...] = ()


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong in a simulated fleet. links: pairs of nodes."""

    bad: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    switches: tuple[str, ...] = ()
    nics: tuple[str, ...] = ()


class IsolationReport(Answer, frozen=True, kw_only=True):
    """One search. rounds: the nodes of each test. tests: their number. results: as rounds.

    reference_gb_s: what a test of two healthy nodes reaches; limit_gb_s: below it, such a test is slow.
    unproven: what a PASS does not cover.
    """

    schema: str = SCHEMA
    nodes: tuple[IsolatedNode, ...]
    rounds: tuple[tuple[tuple[str, ...], ...], ...]
    tests: int
    results: tuple[tuple[GroupTest, ...], ...]
    reference_gb_s: float | None = None
    limit_gb_s: float | None = None
    unproven: tuple[str, ...] = ()
    truth: Truth | None = None
