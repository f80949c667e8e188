"""A machine, and what the rules before the present one found."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from gpucheck.checks._machine import Machine, Pair
from gpucheck.knowledge.codes import Subject, would_show
from gpucheck.model.finding import Finding, Value, Verdict

UNDER_LOAD = "links-under-load"  # the check name of what GPUs reported while they copied


@dataclass
class Case:
    """findings: so far, in the order of the rules. slow: pairs that a finding about slow copies names.

    every_low: each pair over PCIe is below the healthy range.
    """

    machine: Machine
    findings: list[Finding] = field(default_factory=list)
    slow: set[tuple[int, int]] = field(default_factory=set)
    every_low: bool = False

    def symptoms(self, pairs: Iterable[Pair]) -> list[str]:
        """Causes of wrong data and of hangs of these pairs, the first suspects of slow copies between them too."""
        m = self.machine
        places = {"host", *(place for pair in pairs for place in (m.subject([pair]), *map(m.gpu_label, pair)))}
        of_data = (f for f in self.findings if f.check in ("p2p-integrity", "p2p-copies") and f.subject in places)
        return list(dict.fromkeys(one.cause for one in of_data if one.cause and one.verdict is Verdict.FAIL))

    @property
    def has_failed(self) -> bool:
        """Whether a cause was found that explains slow collectives."""
        return any(one.verdict is Verdict.FAIL and one.cause for one in self.findings)


class Observed(Subject, frozen=True):
    """Builder of findings about observations: a number without a unit is GB/s."""

    def explains(self, code: str, seen: Value, wanted: Value = None, **values: Any) -> Finding:
        """Return PASS: as it should be, or different for a reason that is no fault."""
        return replace(self.finding(Verdict.PASS, code, seen, wanted, **values), steps=(), fix="")

    def finding(
        self,
        verdict: Verdict,
        code: str,
        seen: Value = None,
        wanted: Value = None,
        *,
        cause: str | UnsetType | None = None,
        others: Iterable[str] = (),
        **values: Any,
    ) -> Finding:
        """Return a finding. cause: None leaves that of the code. others: causes that fit as well, in order."""
        number = isinstance(seen, float) or isinstance(wanted, float)
        subject = replace(self, unit=self.unit or ("GB/s" if number else None))
        seen, wanted = (round(value, 2) if isinstance(value, float) else value for value in (seen, wanted))
        values |= {"cause": cause or UNSET, "alternatives": would_show(others)}
        return Subject.finding(subject, verdict, code, seen, wanted, **values)


def observed(check: str, name: str = "host", *evidence: str, unit: str | None = None) -> Observed:
    return Observed(check=check, name=name, unit=unit, evidence=evidence)


NAMED = 6


def listed(pairs: Iterable[tuple[int, int]]) -> str:
    """``0-1, 0-2 and 4 more``."""
    words = [f"{i}-{j}" for i, j in pairs]
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return ", ".join(words[:NAMED]) + more


def percent(parts: Iterable[float]) -> str:
    """``100 %`` or ``87 % to 101 %``."""
    return _from_to([100 * part for part in parts], ".0f", " %")


def link_words(generation: int | None, width: int | None) -> str:
    """``Gen4 x16``."""
    return f"Gen{generation or '?'} x{width or '?'}"


def span(values: Iterable[float]) -> str:
    """``9.5`` or ``9.5 to 12.1``."""
    return _from_to(values, ".3g", "")


def _from_to(values: Iterable[float], form: str, unit: str) -> str:
    ordered = sorted(values)
    if not ordered:
        return "nothing"
    low, high = (f"{value:{form}}{unit}" for value in (ordered[0], ordered[-1]))
    return low if low == high else f"{low} to {high}"


def new_errors(case: Case, code: str, *, of_pcie: bool) -> Iterator[Finding]:
    """Yield a finding for each GPU of which these link errors rose while it copied."""
    for row in case.machine.measured.under_load:
        risen = {name: count for name, count in (row.errors or {}).items() if name.startswith("PCIe") == of_pcie}
        if risen:
            lines = (f"{name}: +{count} during the copies" for name, count in risen.items())
            seen = f"new errors while copying: {', '.join(f'{name} +{count}' for name, count in risen.items())}"
            yield observed(UNDER_LOAD, case.machine.gpu_label(row.gpu), *lines).warns(code, seen)
