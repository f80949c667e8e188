"""Files of a host for tests: stub programs, settings, and the permissions that a file has."""

import stat
from pathlib import Path


def script(path: Path, text: str) -> str:
    """Write an executable file; its path as text."""
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def program(folder: Path, name: str, output: str, status: int = 0) -> None:
    """A program that prints this, with the escapes of printf, and exits."""
    script(folder / name, f"#!/bin/sh\nprintf '%b' '{output}'\nexit {status}\n")


def put(root: Path, path: str, content: str | bytes = "") -> Path:
    """Write a file below root, with the directories that it lacks."""
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.encode() if isinstance(content, str) else content)
    return target


def mode(path: Path) -> int:
    """The permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)
