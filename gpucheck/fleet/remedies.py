"""Advice for a finding, from gpucheck's own tables: commands of a host's report are never shown as advice to paste.

A host may be broken or hostile. Its own advice is shown as a quotation only, and where no cause is known.
"""

import msgspec

from gpucheck.knowledge import causes
from gpucheck.model import Finding

AGAIN = "run gpucheck verify --format json on the host again"
LOOK = "check which program wrote this file"
UNPACK = "unpack it, or give a stream: zcat FILE | gpucheck fleet report -"
REPORTS = "give the hosts' reports, and this file with --baseline"
WAY = "repair the connection to the host, then run gpucheck verify again"
VERSION = "use the same version of gpucheck on all hosts and for the merge"
OWN_REPORT = "read the host's own report"
DISTRUST = "run gpucheck verify on the host again; if the new report contradicts itself too, find what changed it"
OWN_ADVICE = frozenset({AGAIN, LOOK, UNPACK, REPORTS, WAY, VERSION, OWN_REPORT, DISTRUST})
QUOTED = "the host's report states: "
LONGEST = 300


def advised(finding: Finding) -> Finding:
    """Return the finding with the remedy of its cause first, and its own advice as a quotation."""
    cause = causes().get(finding.cause or "")
    remedy = cause.remedy if cause is not None else ""
    own = finding.fix.removeprefix(remedy).strip()
    if not own or own in OWN_ADVICE:
        fix = remedy or own or (OWN_REPORT if finding.fix else "")
    else:
        quoted = f'{QUOTED}"{_quotable(own)}"'
        fix = f"{remedy} ({quoted})" if remedy else quoted
    return finding if fix == finding.fix else msgspec.structs.replace(finding, fix=fix)


def _quotable(text: str) -> str:
    """On one line, and without a character that ends the quotation."""
    line = " ".join(text.split()).replace('"', "'")
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
