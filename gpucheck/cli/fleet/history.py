"""fleet history, and keeping what it looks back on."""

import gzip
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from gpucheck.cli._shared.common import Problem, usage_errors, write_result
from gpucheck.model import FleetReport


def keep(merged: FleetReport, folder: Path) -> None:
    """Add the merge to the directory under the time it was made. Raises Problem when it cannot be written."""
    name = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H-%M-%S.%fZ")
    write_result(gzip.compress(msgspec.json.encode(merged), 6, mtime=0), folder / f"{name}.json.gz")


def run(name: str, folder: Path, last: int, format_: str, output: Path | None) -> None:
    """Show one host or metric. Raises Problem."""
    from gpucheck.fleet.history import follow, kept
    from gpucheck.render.fleet import history as render

    with usage_errors(LookupError, ValueError):
        merges = list(kept(folder, last))
        if not merges:
            add = f"gpucheck fleet report REPORTS --history-dir {folder}"
            raise Problem(f"{folder}: contains no merge. Add one: {add}", 3)
        found = follow(merges, name)
    write_result({"json": render.to_json, "svg": render.to_svg, "text": render.to_text}[format_](found), output)
