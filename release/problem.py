"""What stops a release, and the programs that it runs."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class ReleaseError(Exception):
    """Why there is no release, and what to do, in one message."""


def run(
    words: Sequence[str | Path], *, what: str, environment: Mapping[str, str] | None = None, **options: object
) -> str:
    """Run a program and return its stdout. what: for the message. Raises ReleaseError with the program's own words."""
    arguments = [str(word) for word in words]
    try:
        done = subprocess.run(
            arguments,
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, **(environment or {})},
            **options,  # type: ignore[call-overload]
        )
    except FileNotFoundError as error:
        raise ReleaseError(f"{what}: {arguments[0]} is not installed or not on PATH") from error
    if done.returncode:
        output = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise ReleaseError(f"{what}: {arguments[0]} exited with {done.returncode}:\n{output}")
    return str(done.stdout)
