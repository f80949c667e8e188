"""A check: a name, tags, the facts that it needs, and a pure function from facts to findings.

What it can report is in gpucheck/knowledge/codes/*.yml, under its name.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpucheck.model.facts import Facts
from gpucheck.model.finding import Finding


def _nothing_more(_facts: Facts) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True)
class Check:
    """needs: as in gpucheck.model.facts; if one has no answer, that alone decides, and evaluate is not called.

    more: further needs that depend on the first answers, such as the packages that a file names.
    thresholds: what its verdicts depend on, as text with the values.
    """

    name: str
    tags: frozenset[str]
    evaluate: Callable[[Facts], Iterable[Finding]]
    needs: tuple[str, ...] = ()
    more: Callable[[Facts], Iterable[str]] = _nothing_more
    thresholds: tuple[str, ...] = ()
