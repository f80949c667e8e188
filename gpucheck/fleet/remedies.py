"""Words of a host's finding, from gpucheck's own tables: commands of a host's report are never shown as such.

A host may be broken or hostile. Of a finding whose code this version has, only the code and its values count. Of
others the advice is shown as a quotation, after the steps of their cause.
"""

from functools import cache

import msgspec

from gpucheck.knowledge import causes
from gpucheck.knowledge.causes import fix_of
from gpucheck.knowledge.codes import rows, words_of
from gpucheck.model import Finding
from gpucheck.model.finding import Step, Values, bus_ids

QUOTED = "the host's report states: "
LONGEST = 300


@cache
def _known() -> frozenset[str]:
    return frozenset(name for name, _ in rows())


def advised(finding: Finding) -> Finding:
    """Return the finding with why and steps of its code, or with its own advice as a quotation."""
    if finding.code not in _known():
        return _quoted(finding)
    if not any(map(_is_option, (*finding.values.values(), *bus_ids(finding.subject)))):
        try:
            return _of_code(finding)
        except (LookupError, ValueError, TypeError, OverflowError):
            pass  # the values are not those that this version has for the code
    return _quoted(msgspec.structs.replace(finding, code=None, values={}))


def _is_option(value: Values) -> bool:
    """Whether a program would take a value for an option of its own, which quotes do not prevent."""
    several = value if isinstance(value, tuple) else (value,)
    return any(isinstance(one, str) and one.startswith("-") for one in several)


def _of_code(finding: Finding) -> Finding:
    why, steps = words_of(finding.code or "", finding.subject, finding.values, cause=finding.cause)
    return msgspec.structs.replace(finding, why=why, steps=steps, fix=fix_of(steps))


def _quoted(finding: Finding) -> Finding:
    cause = causes().get(finding.cause or "")
    steps = cause.advice if cause is not None else ()
    if finding.fix != fix_of(steps):
        steps += (Step(text=f'{QUOTED}"{_quotable(finding.fix)}"', changes=True),)
    return msgspec.structs.replace(finding, steps=steps, fix=fix_of(steps))


def _quotable(text: str) -> str:
    """On one line, and without a character that ends the quotation."""
    line = "; ".join(" ".join(line.split()) for line in text.splitlines() if line.strip()).replace('"', "'")
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
