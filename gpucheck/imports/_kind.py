"""What every kind of dump offers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TOPOLOGY_COMMAND = "gpucheck topo --import FILE"


@dataclass(frozen=True)
class Kind:
    """One kind of dump.

    title: how a message names it. recognise: a cheap look, may be wrong in favour of the kind.
    parse: text -> what the dump holds; raises ImportProblem and nothing else.
    holds: ``topology`` when parse gives a Topology, else another word for what it gives (``bandwidth``).
    command: which command reads it. loose: recognise takes much for its own, so the others are asked first.
    """

    name: str
    title: str
    recognise: Callable[[str], bool]
    parse: Callable[[str], Any]
    holds: str = "topology"
    command: str = TOPOLOGY_COMMAND
    loose: bool = False


@dataclass(frozen=True)
class MeasuredKind(Kind):
    """One kind of measurements: like every Kind, but what it holds are numbers and no topology."""

    holds: str = "measurements"
    command: str = "gpucheck diagnose --bandwidth FILE"
