"""JSON of reports: the published contracts, with a line for each finding, GPU and measurement."""

import msgspec
from msgspec.structs import replace

from gpucheck.model import Report, Verdict
from gpucheck.printable import for_terminal

DEPTH = 2
# Of a finding, where they are null or empty: most findings are about one GPU, pass, and are no part of another fault.
LEFT_OUT = ("peer_index", "peer_uuid", "because_of", "because_of_subject", "values", "steps")
NOTHING: tuple[object, ...] = (None, {}, [], ())


def in_short(report: Report) -> Report:
    """Return the report of a host without the evidence of each PASS, which a recording of the host gives again."""
    findings = (replace(one, evidence=()) if one.verdict is Verdict.PASS else one for one in report.findings)
    return replace(report, findings=tuple(findings))


def to_json(report: object) -> str:
    """Return a struct or a mapping as JSON, without redaction. Strings are as they were once it is read.

    The entries of the two outermost levels have a line each: grep finds a finding, and a line has all of it.
    """
    return _laid_out(msgspec.to_builtins(report), DEPTH, "")


def _laid_out(value: object, depth: int, indent: str) -> str:
    inner = indent + "  "
    if depth and isinstance(value, dict) and value:
        entries = [f"{line(key)}: {_laid_out(entry, depth - 1, inner)}" for key, entry in value.items()]
        return "{\n" + ",\n".join(inner + entry for entry in entries) + f"\n{indent}}}"
    if depth and isinstance(value, list | tuple) and value and isinstance(value[0], dict | list | tuple):
        return "[\n" + ",\n".join(inner + line(entry) for entry in value) + f"\n{indent}]"
    return line(value)


def line(value: object) -> str:
    """Return a value as JSON in one line.

    What a terminal or an editor would act on, or not show, is escaped: a file may be printed with other programs.
    """
    if isinstance(value, dict) and "verdict" in value:
        value = {key: entry for key, entry in value.items() if key not in LEFT_OUT or entry not in NOTHING}
    text = msgspec.json.encode(value).decode()
    # Of ASCII, JSON leaves nothing but this one unescaped.
    return text if text.isascii() and "\x7f" not in text else for_terminal(text)
