"""The plan's tuning against the host: files, and settings of the running kernel as far as they can be set here."""

import glob
import os
import re

from .host_plan import file_differences, wrong
from .readers.files import text

CHOSEN = re.compile(r"\[(\w+)\]")


def wanted(plan):
    return plan.get("tuning") or {"files": [], "live": []}


def current(content):
    """Return the active value: of ``always [madvise] never`` the one in brackets, of several with one space each."""
    chosen = CHOSEN.search(content)
    return chosen.group(1) if chosen else " ".join(content.split())


def settings(plan, root="/"):
    """(to set, left): rows of path, value and seen; words for every setting that stays as it is, and why."""
    ready, left = [], []
    for row in wanted(plan)["live"]:
        found = sorted(glob.glob(os.path.join(root, row["path"].lstrip("/"))))
        other = [(path, current(text(path) or "")) for path in found]
        other = [(path, seen) for path, seen in other if seen != row["value"]]
        refused = [(seen, why) for path, seen in other for why in [why_not(path, row["value"], root)] if why]
        if not found:
            left.append("{}: this kernel has no {}".format(row["name"], row["path"]))
        elif refused:
            left.append("{} stays {}: {}".format(row["name"], *refused[0]))
        else:
            ready += [{"path": path, "value": row["value"], "seen": seen, "name": row["name"]} for path, seen in other]
    return ready, left


def why_not(path, value, root="/"):
    """Why root cannot set this, "" if it can: a container has a read-only file system, a processor few governors."""
    if os.access(path, os.W_OK):
        offered = text(os.path.join(os.path.dirname(path), "scaling_available_governors"))
        return "" if offered is None or value in offered.split() else f"this host offers {offered}"
    if os.path.exists(os.path.join(root, "run/systemd/container")) or os.path.exists(os.path.join(root, ".dockerenv")):
        return "a container cannot change its host's kernel; set it on the host"
    return f"{path} is not writable"


def state(plan, root="/"):
    """What the role acts on: paths of files that differ, settings to set now, and what is left with the reason."""
    ready, left = settings(plan, root)
    return {"wrong_files": wrong(wanted(plan)["files"]), "live": ready, "left": left}


def differences(plan, root="/"):
    """Return messages for what differs from the plan's tuning. Settings that cannot be set are no difference."""
    live = ["{name} is {seen}, planned {value}".format(**row) for row in settings(plan, root)[0]]
    return file_differences(wanted(plan)["files"]) + live
