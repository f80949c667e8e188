"""Lines of the kernel log that are about GPUs, the health of the host or the end of a job, and are not understood.

What is not known to be harmless is quoted and is no PASS (knowledge/kernel_lines.yml).
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from gpucheck.checks.kernel._events import BUS, LogMessage, bus_id
from gpucheck.knowledge.codes import Subject
from gpucheck.knowledge.kernel_messages import Family, Harmless, families, trouble
from gpucheck.model import Finding, Verdict
from gpucheck.printable import counted

CHECK = "kernel-log"
SHOWN = 5
QUOTE = 300
BUS_ID = re.compile(BUS)
NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
# Lines of other programs in a syslog, and the frames of a stack, whose head has the meaning.
OTHER = re.compile(r"[\w.-]{1,255} (?:\S{1,100}\[\d{1,10}\]|[\w./-]{1,60}\.desktop\S{0,20}): |.{0,60}\+0x[0-9a-f]+/0x")


class _Compiled(NamedTuple):
    """A family. plain: its lines that are harmless without a condition; rest: those that need one."""

    family: Family
    pattern: re.Pattern[str]
    plain: re.Pattern[str]
    rest: tuple[tuple[Harmless, re.Pattern[str]], ...]


def strangers(log: Iterable[LogMessage], known: frozenset[str], gpus: frozenset[str]) -> Iterator[Finding]:
    """One finding for each family, verdict and subject.

    log: messages that no code and no class explains. known: keys of what the log reports. gpus: their bus ids.
    """
    groups: dict[tuple[str, Verdict, str], list[LogMessage]] = {}
    for message in log:
        of = _family(message.text)
        if of is not None and not _is_harmless(message, of, known):
            verdict = Verdict.WARN if _trouble().search(message.text) else Verdict.UNKNOWN
            groups.setdefault((of.family.key, verdict, _subject(message.text, gpus)), []).append(message)
    by_key = {family.key: family for family in families()}
    for (key, verdict, subject), found in groups.items():
        yield _finding(by_key[key], verdict, subject, found)


def _finding(family: Family, verdict: Verdict, subject: str, found: list[LogMessage]) -> Finding:
    distinct: dict[str, LogMessage] = {}
    for message in found:
        distinct.setdefault(NUMBER.sub("0", message.text[:QUOTE]), message)
    quotes = [message.text[:QUOTE] for message in distinct.values()][:SHOWN]
    more = len(found) - len(quotes)
    evidence = (*quotes, *((f"and {counted(more, 'line')} more",) if more else ()))
    of = Subject(check=CHECK, name=subject, evidence=evidence)
    seen = f"{counted(len(found), 'line')} about {family.title} not recognized"
    code = "kernel.line-of-trouble" if verdict is Verdict.WARN else "kernel.line-not-known"
    return of.finding(verdict, code, seen, advice=family.steps, family=family.key)


def _family(text: str) -> _Compiled | None:
    if not _any_word().search(text) or OTHER.match(text):
        return None
    having = (_compiled(family.key) for family in families() if any(word in text for word in family.words))
    return next((one for one in having if one.pattern.search(text)), None)


def _is_harmless(message: LogMessage, of: _Compiled, known: frozenset[str]) -> bool:
    if of.plain.match(message.text):
        return True
    seconds = message.line.seconds
    return any(
        known.intersection(row.of) if row.of else seconds is not None and seconds < (row.within or 0)
        for row, pattern in of.rest
        if pattern.match(message.text)
    )


def _subject(text: str, gpus: frozenset[str]) -> str:
    named = {bus_id(match["bus"]) for match in BUS_ID.finditer(text)} & gpus
    return f"gpu:{named.pop()}" if len(named) == 1 else "host"


@cache
def _compiled(key: str) -> _Compiled:
    """Compiled when a line has a word of the family: all of them cost more than the rest of the check."""
    family = next(one for one in families() if one.key == key)
    plain = [p for row in family.harmless if not row.of and row.within is None for p in row.patterns]
    rest = [row for row in family.harmless if row.of or row.within is not None]
    return _Compiled(
        family,
        re.compile("|".join(family.patterns)),
        re.compile("|".join(plain) or "(?!)"),
        tuple((row, re.compile("|".join(row.patterns))) for row in rest),
    )


@cache
def _any_word() -> re.Pattern[str]:
    """A line without any of these words belongs to no family."""
    return re.compile("|".join(sorted({re.escape(word) for family in families() for word in family.words})))


@cache
def _trouble() -> re.Pattern[str]:
    return re.compile(trouble())
