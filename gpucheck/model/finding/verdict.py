"""The five verdicts, how they outrank each other, and the exit status they become."""

from collections.abc import Iterable
from enum import Enum


class Verdict(Enum):
    """What a check concluded. UNKNOWN is "could not look"; SKIP is "does not apply here"."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"
    SKIP = "skip"

    __hash__ = object.__hash__  # Enum's own is Python code, and a fleet asks for it a million times


RANK = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN, Verdict.PASS)  # worst first
# --fail-on: the verdicts that are no success. Whoever schedules jobs may accept WARN, and not "could not look".
FAIL_ON = {
    "warn": (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN),
    "unknown": (Verdict.FAIL, Verdict.UNKNOWN),
    "fail": (Verdict.FAIL,),
}

# Nagios plugin meanings. Every other status is outside 0 to 3, so that nothing acts on it as on a verdict.
EXIT_STATUS = {Verdict.PASS: 0, Verdict.WARN: 1, Verdict.FAIL: 2, Verdict.UNKNOWN: 3}
EXIT_USAGE = 64  # wrong usage, or input that cannot be read; 64, 70 and 74 as in <sysexits.h>
EXIT_DEFECT = 70
EXIT_NOT_WRITTEN = 74
EXIT_INTERRUPTED = 130
EXIT_READER_LEFT = 141  # as a shell reports a program that SIGPIPE ended


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a whole: the worst of its parts. SKIP never counts; nothing to count is UNKNOWN."""
    seen = set(verdicts)
    return next((verdict for verdict in RANK if verdict in seen), Verdict.UNKNOWN)


def exit_status(verdicts: Iterable[Verdict], fail_on: str) -> int:
    """The status of a command with these findings. fail_on: a key of FAIL_ON."""
    seen, counted = set(verdicts), FAIL_ON[fail_on]
    whole = worst(seen)
    if whole in counted or whole is Verdict.PASS:
        return EXIT_STATUS[whole]
    return EXIT_STATUS[worst((Verdict.PASS, *seen.intersection(counted)))]
