"""JSON of reports: the published contracts, with a line for each finding, GPU and measurement."""

import msgspec

DEPTH = 2


def to_json(report: object) -> str:
    """Return a struct or a mapping as JSON, without escaping and redaction.

    The entries of the two outermost levels have a line each: grep finds a finding, and a line has all of it.
    """
    return _laid_out(msgspec.to_builtins(report), DEPTH, "")


def _laid_out(value: object, depth: int, indent: str) -> str:
    inner = indent + "  "
    if depth and isinstance(value, dict) and value:
        entries = [f"{_line(key)}: {_laid_out(entry, depth - 1, inner)}" for key, entry in value.items()]
        return "{\n" + ",\n".join(inner + entry for entry in entries) + f"\n{indent}}}"
    if depth and isinstance(value, list | tuple) and value and isinstance(value[0], dict | list | tuple):
        return "[\n" + ",\n".join(inner + _laid_out(entry, 0, inner) for entry in value) + f"\n{indent}]"
    return _line(value)


def _line(value: object) -> str:
    return msgspec.json.encode(value).decode()
