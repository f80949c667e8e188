"""A check: a name, tags, one read of the host, and one pure evaluation of what was read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gpucheck.model.finding import Finding
from gpucheck.model.host import Host

V = TypeVar("V")


@dataclass(frozen=True)
class Check(Generic[V]):
    """probe is the only part that touches the host; evaluate is a pure function of what probe returned.

    seconds: time limit of the entire check, after which its child process is terminated.
    """

    name: str
    tags: frozenset[str]
    probe: Callable[[Host], V]
    evaluate: Callable[[V], Iterable[Finding]]
    seconds: float = 20.0


AnyCheck = Check[Any]
