#!/usr/bin/env python3
"""scan_exceptions.py FILE VARIANT: the scan's exceptions as an ignore file; an expired or unreasoned one is refused."""

import sys
from datetime import date, datetime, timezone
from typing import Any

import yaml

KEYS = {"id", "reason", "expires", "variants"}


def wrong(row: Any, today: date) -> str | None:
    """Why an exception does not hold, None where it does."""
    if not isinstance(row, dict) or not isinstance(row.get("id"), str):
        return f"{row!r}: an exception needs an id"
    name = row["id"]
    if unknown := sorted(row.keys() - KEYS):
        return f"{name}: no such key: {', '.join(unknown)}"
    if len(str(row.get("reason") or "").split()) < 3:
        return f"{name}: say in a sentence why it may pass (reason)"
    expires = row.get("expires")
    if not isinstance(expires, date):
        return f"{name}: say until when (expires: 2026-12-31)"
    if expires < today:
        return f"{name}: expired on {expires}; fix the finding, or decide again and say why"
    return None


def ignored(text: str, variant: str, today: date) -> list[str]:
    """The ids to ignore for a variant. Raises ValueError with every exception that does not hold."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {error}") from error
    rows = content.get("exceptions") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise ValueError("exceptions: must be a list, empty where there are none")  # noqa: TRY004 - content, not a call
    problems = [problem for row in rows if (problem := wrong(row, today))]
    if problems:
        raise ValueError("\n".join(problems))
    return [row["id"] for row in rows if variant in row.get("variants", [variant])]


def main() -> int:
    """Print the ids, one a line; 2 and the reasons on stderr where the file does not hold."""
    path, variant = sys.argv[1:3]
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - runs without this project's helpers
            found = ignored(file.read(), variant, datetime.now(timezone.utc).date())
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{path}: {error}\n")
        return 2
    sys.stdout.write("".join(f"{name}\n" for name in found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
