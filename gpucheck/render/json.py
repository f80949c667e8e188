"""JSON of reports: the published contracts, indented for readers."""

import msgspec


def to_json(report: object) -> str:
    """Return a struct or a mapping as indented JSON, without escaping and redaction."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
