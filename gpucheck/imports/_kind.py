"""What every kind of dump offers."""

from collections.abc import Callable
from dataclasses import dataclass

from gpucheck.model.observations import Import
from gpucheck.model.topology import Topology


@dataclass(frozen=True)
class Kind:
    """One kind of dump.

    title: how a message names it. recognise: a cheap look, may be wrong in favour of the kind.
    parse: text -> Topology; raises ImportProblem and nothing else.
    """

    name: str
    title: str
    recognise: Callable[[str], bool]
    parse: Callable[[str], Topology]


@dataclass(frozen=True)
class MeasuredKind:
    """One kind of measurements; like Kind, but what it holds are numbers and no topology."""

    name: str
    title: str
    recognise: Callable[[str], bool]
    parse: Callable[[str], Import]
