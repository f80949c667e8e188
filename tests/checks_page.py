"""The checks as a Markdown page, made from what they and the catalogue of codes declare: docs/checks.md.

``python -m tests.checks_page`` prints it.
"""

import sys
from collections.abc import Iterator

from gpucheck.checks import all_checks
from gpucheck.knowledge.codes import causes_of, reported
from gpucheck.model import Check, Verdict

HEAD = """<!-- Made by: python -m tests.checks_page > docs/checks.md -->
# Checks

`gpucheck verify` runs every check below; `gpucheck verify --only NAME` runs one. A check reads values of the host and
evaluates them without side effects: a recording gives the same findings as the host. Every check can be PASS, and is
UNKNOWN if a value that it needs could not be read. A check with the tag `measure` evaluates what the step that its
other tag names measured, and may report nothing if nothing is wrong; `--only` takes the step. `gpucheck explain` prints
meaning and fix of a code or cause. Causes of messages in the kernel log are in `gpucheck/knowledge/kernel_messages.yml`
and `xid.yml`.
"""
TABLE = "| check | question | verdicts |\n|---|---|---|"
ORDER = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN, Verdict.SKIP, Verdict.PASS)


def page() -> str:
    """Return the page: a table of all checks, then one section per check."""
    checks = all_checks()
    lines = [HEAD, TABLE]
    for check in checks:
        verdicts = {*reported(check.name), Verdict.UNKNOWN, Verdict.PASS}
        shown = ", ".join(verdict.name for verdict in ORDER if verdict in verdicts)
        lines.append(f"| [{check.name}](#{check.name}) | {_paragraphs(check)[0]} | {shown} |")
    first: dict[str, str] = {}  # by what it declares
    for check in checks:
        same = first.setdefault(f"{check.about} {reported(check.name)}", check.name)
        lines += ["", *(_section(check) if same == check.name else (f"## {check.name}", "", f"As [{same}](#{same})."))]
    return "\n".join(lines) + "\n"


def _paragraphs(check: Check) -> list[str]:
    """Return the paragraphs of the text about the check, each on one line."""
    return [" ".join(part.split()).replace("|", "\\|") for part in check.about.split("\n\n")]


def _section(check: Check) -> Iterator[str]:
    yield f"## {check.name}"
    for paragraph in _paragraphs(check):
        yield ""
        yield paragraph
    yield ""
    yield f"- Module: `{check.evaluate.__module__.replace('.', '/')}.py`; tags: {', '.join(sorted(check.tags))}"
    for verdict, codes in reported(check.name).items():
        yield f"- {verdict.name}: {', '.join(f'`{code}`' for code in codes)}"
    if causes := causes_of(check.name):
        yield f"- Causes: {', '.join(f'`{cause}`' for cause in causes)}"
    if check.thresholds:
        yield f"- Thresholds: {'; '.join(check.thresholds)}"


if __name__ == "__main__":
    sys.stdout.write(page())
