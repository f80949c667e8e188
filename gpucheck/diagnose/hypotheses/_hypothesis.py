"""What a hypothesis is: when it is possible, what it predicts, how likely it is before any number is seen."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpucheck.diagnose.instance import Instance
    from gpucheck.diagnose.machine import Machine


@dataclass(frozen=True)
class Hypothesis:
    """One family of causes.

    causes: keys of gpucheck/knowledge/causes.yml. instances: the ways in which it may be true on a machine, each with
    what it changes and its prior probability; none where it is not possible. All other fields are for people.
    """

    name: str
    causes: tuple[str, ...]
    title: str
    possible_when: str
    predicts: str
    prior: str
    never_explains: str
    sources: tuple[str, ...]
    instances: Callable[["Machine"], Iterator["Instance"]]
    cases: tuple[str, ...] = ()
