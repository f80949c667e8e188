"""Files, records and folders as they are to be on a host: whether they are, and putting them in place.

A row has ``path`` and ``state``; a file also ``content`` and ``mode``, a folder ``mode``.
"""

import json
import os
import stat

from .readers.files import text

FOLDER_MODE = 0o755


def write(module, path, content, mode=None):
    """Write a file atomically: a truncated record would be lost.

    mode: 0644 for a new file if omitted; an existing file keeps its own then.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    partial = path + ".partial"
    try:
        fresh(partial, content)
        os.chmod(partial, 0o644 if mode is None else mode)
        if mode is not None and os.path.exists(path):
            os.chmod(path, mode)  # atomic_move gives the new file the permissions of the old one
        module.atomic_move(partial, path)
    finally:
        # Still there where the disk is full, or the file cannot be replaced.
        if os.path.exists(partial):
            os.unlink(partial)


def fresh(path, content, mode=0o600):
    """Write a new file, through to the disk. A killed run leaves one, and another user may have put a link there."""
    if os.path.lexists(path):
        os.unlink(path)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def stored(path):
    """A JSON object from a file, {} where there is none that can be read."""
    try:
        content = json.loads(text(path) or "null")
    except (ValueError, RecursionError):
        content = None
    return content if isinstance(content, dict) else {}


def as_bytes(value):
    return (json.dumps(value, indent=4, sort_keys=True) + "\n").encode("utf-8")


def normal(row):
    """The row with its defaults. Raises ValueError if it is invalid."""
    path, state = row.get("path"), row.get("state", "present")
    if not isinstance(path, str) or not os.path.isabs(path) or shallow(path):
        raise ValueError(f"path {path!r} must be absolute, and below a directory of /")
    if state not in ("present", "directory", "absent"):
        raise ValueError(f"{path}: state {state!r} is not present, directory or absent")
    if state == "present" and not isinstance(row.get("content"), str):
        raise ValueError(f"{path}: a file needs its content as text")
    try:
        mode = int(row.get("mode", "0755" if state == "directory" else "0644"), 8)
    except (TypeError, ValueError):
        raise ValueError("{}: mode {!r} is not an octal number in quotes".format(path, row["mode"]))
    return {"path": os.path.normpath(path), "state": state, "mode": mode, "content": row.get("content", "")}


def shallow(path):
    """Return True for / and for what is directly in it: no row may name a root directory such as /etc."""
    return os.path.normpath(path).count("/") < 2 or os.path.normpath(path).startswith("//")


def owner():
    """(user, group) that everything belongs to: the one that the module runs as, root under become."""
    return os.geteuid(), os.getegid()


def same_owner_and_mode(path, mode):
    seen = os.stat(path)
    return (seen.st_uid, seen.st_gid) == owner() and stat.S_IMODE(seen.st_mode) == mode


def read(path):
    """The bytes of a file, None where there is no file. Raises OSError where it may not be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def differs(row):
    """Return True if the host differs from the row. Raises OSError if the state is unknown."""
    path = row["path"]
    if row["state"] == "absent":
        return os.path.lexists(path)
    if row["state"] == "directory":
        return not (os.path.isdir(path) and same_owner_and_mode(path, row["mode"]))
    return read(path) != row["content"].encode("utf-8") or not same_owner_and_mode(path, row["mode"])


def apply(module, row):
    """Apply the row to the host. Raises OSError."""
    if row["state"] == "absent":
        remove(row["path"])
    elif row["state"] == "directory":
        make_folders(row["path"])
        set_owner_and_mode(row["path"], row["mode"])
    else:
        put(module, row["path"], row["content"].encode("utf-8"), row["mode"])


def put(module, path, content, mode=0o644):
    """Write a file atomically, with the directories that it lacks. Raises OSError."""
    make_folders(os.path.dirname(path))
    if read(path) != content:
        try:
            write(module, path, content, mode)
        except OSError:
            raise
        except Exception as error:  # atomic_move of newer versions raises no narrower one
            raise OSError(str(error))
    set_owner_and_mode(path, mode)


def make_folders(path):
    """Make a folder and those above it that are missing, whatever the umask is. Raises OSError."""
    if os.path.isdir(path):
        return
    make_folders(os.path.dirname(path))
    os.mkdir(path)
    set_owner_and_mode(path, FOLDER_MODE)


def set_owner_and_mode(path, mode):
    """Set the owner to the module's user, and these permissions, if they differ. Raises OSError."""
    if not same_owner_and_mode(path, mode):
        os.chown(path, *owner())
        os.chmod(path, mode)


def remove(path):
    """Remove a file or a link. Raises OSError, also for a directory: a mistyped row must not delete a file system."""
    if os.path.isdir(path) and not os.path.islink(path):
        raise OSError("it is a folder, and folders are not removed")
    if os.path.lexists(path):
        os.unlink(path)


def change(path, after):
    """What --diff shows of a path. after: its text to be, "" where it is to go; unreadable bytes show as such."""
    before = read(path) if os.path.isfile(path) else None
    shown = (before or b"").decode("utf-8", "replace")
    return {"before_header": path, "after_header": path, "before": shown, "after": after}
