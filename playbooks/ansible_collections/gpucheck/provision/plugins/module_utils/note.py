"""Write records on a host atomically.

Runs on the managed host: standard library only, Python 3.6 or newer.
"""

import json
import os


def write(module, path, content, mode=None):
    """Write a file atomically: a truncated record would be lost.

    mode: 0644 for a new file if omitted; an existing file keeps its own then.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    partial = path + ".partial"
    try:
        if os.path.lexists(partial):
            os.unlink(partial)
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o644 if mode is None else mode)
        if mode is not None and os.path.exists(path):
            os.chmod(path, mode)  # atomic_move gives the new file the permissions of the old one
        module.atomic_move(partial, path)
    finally:
        # Still there where the disk is full, or the file cannot be replaced.
        if os.path.exists(partial):
            os.unlink(partial)


def as_bytes(value):
    """JSON to be read by people too."""
    return (json.dumps(value, indent=4, sort_keys=True) + "\n").encode("utf-8")
