"""Writing what we keep on a host: whole or not at all.

Runs on the managed host: standard library only, Python 3.6 or newer.
"""

import json
import os


def write(module, path, content):
    """Write a file whole or not at all: a note cut off in the middle would be none."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    partial = path + ".partial"
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o644)
        module.atomic_move(partial, path)
    finally:
        # Still there where the disk is full, or the file cannot be replaced.
        if os.path.exists(partial):
            os.unlink(partial)


def as_bytes(value):
    """JSON to be read by people too."""
    return (json.dumps(value, indent=4, sort_keys=True) + "\n").encode("utf-8")
