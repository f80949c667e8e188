"""The reasons of a diagnosis: the causes that were weighed, and what each predicted next to what was observed."""

from typing import Literal

import msgspec

from gpucheck.model.finding import Finding

Quantity = Literal[
    "p2p-one-way", "p2p-both-ways", "staged-one-way", "staged-both-ways", "p2p-latency", "staged-latency", "host-copy",
    "collective", "flows",
]  # fmt: skip


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """One number that an explanation predicted. GB/s (10**9 bytes per second), latencies in us; sums for both ways.

    a, b: GPU indexes, source and destination (both directions of a sum have a < b); b is None for one GPU's number.
    low to high: the range that holds nine values of ten; middle: its median. basis: how it was worked out.
    weight: how much this number spoke for the explanation against the best of the others, in decibans (10 log10 of the
    likelihood ratio); None for what is not compared.
    """

    quantity: Quantity
    a: int
    b: int | None = None
    measured: float
    low: float
    middle: float
    high: float
    basis: str
    weight: float | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One set of causes that explains the whole machine, as far as it does. probability: among all that were weighed.

    causes: (cause key, subject) pairs, empty for a machine without a fault. words: for people, one line.
    readings: what it predicted of states and errors, and what was observed, one line each.
    """

    causes: tuple[tuple[str, str], ...]
    probability: float
    words: str
    predictions: tuple[Predicted, ...] = ()
    readings: tuple[str, ...] = ()


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about one machine. ranking: most probable first, at most a dozen; gpus: names by index.

    decided: the number or reading that distinguished the first from the second, one line; empty if there was none.
    """

    findings: tuple[Finding, ...]
    ranking: tuple[Explanation, ...] = ()
    gpus: tuple[str, ...] = ()
    decided: str = ""
