"""Programs of a host that say what a test has them say."""

import stat
from pathlib import Path


def program(folder: Path, name: str, output: str, status: int = 0) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\nprintf '%b' '{output}'\nexit {status}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
