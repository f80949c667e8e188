"""What a run showed: a table, and the failing inputs as files."""

import re
from collections import Counter
from pathlib import Path

from tests.fuzz.runner import Found, Result


def table(result: Result) -> str:
    """A line a target: inputs, distinct failures, inputs a second of processor time."""
    failures = Counter(one.failure.target for one in result.found)
    rows = [("target", "inputs", "failures", "inputs/s")]
    for name, inputs in result.inputs.items():
        seconds = result.seconds[name]
        rows.append((name, f"{inputs:,}", str(failures[name]), f"{inputs / seconds:,.0f}" if seconds else "-"))
    total, spent = sum(result.inputs.values()), sum(result.seconds.values())
    rows.append(("total", f"{total:,}", str(len(result.found)), f"{total / spent:,.0f}" if spent else "-"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join(lines)


def saved(found: Found, seed: int, folder: Path) -> Path:
    """Write the input beside a line about it."""
    failure = found.failure
    name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{failure.target}-{failure.kind}-{failure.where}").strip("-")[:120]
    path = folder / f"{name}.input"
    path.write_bytes(found.data)
    path.with_suffix(".txt").write_text(f"{described(found)}\nmade by: {again(found, seed)}\n", encoding="utf-8")
    return path


def described(found: Found) -> str:
    """The failure on one line."""
    failure = found.failure
    place = f" at {failure.where}" if failure.where else ""
    return f"{failure.target}: {failure.kind}{place}{f': {failure.detail}' if failure.detail else ''}"


def again(found: Found, seed: int) -> str:
    """The command that makes and runs the same input."""
    return f"python -m tests.fuzz --target {found.failure.target} --seed {seed} --case {found.case}"
