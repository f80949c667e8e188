"""Compare the plan's services with systemd: what does not run as planned, and whether systemd needs a reload."""

from .readers.files import Unreadable, command
from .readers.programs import units

# What counts as enabled, both for the comparison and for the change.
ENABLED = ("enabled", "static", "enabled-runtime")
FIELDS = "Id,LoadState,ActiveState,UnitFileState,NeedDaemonReload"


def states(names):
    """systemd's FIELDS of each unit, in one call; an error's words in place of them where it cannot be asked."""
    if not names:
        return {}
    try:
        shown = command(["systemctl", "show", "--no-pager", "-p", FIELDS] + [name + ".service" for name in names])
    except Unreadable as error:
        return {name: {"error": str(error)} for name in names}
    return dict(zip(names, units(shown)))


def differences(plan, seen):
    """Services that are not enabled or not running as planned. seen: of ``states``."""
    words = []
    for row in plan["services"]:
        state = seen.get(row["name"], {})
        if "error" in state:
            return ["services cannot be read: {}".format(state["error"])]
        active = state.get("ActiveState", "unknown")
        if row["state"] == "started" and active != "active":
            words.append("{} is {}, planned started".format(row["name"], active))
        if row["enabled"] and state.get("UnitFileState") not in ENABLED:
            words.append("{} is not enabled".format(row["name"]))
    return words


def failed(seen):
    """Units whose failed attempts count towards their limit of starts. One between two attempts is ``activating``."""
    return sorted(name for name, state in seen.items() if state.get("ActiveState") in ("failed", "activating"))


def details(seen):
    """What the role acts on.

    reload: whether systemd reports that it has yet to read a changed unit; it misses the first drop-in of a unit. No
    difference by itself: the next boot reads it, and a reload can take the GPUs from containers that run.
    """
    return {"reload": any(state.get("NeedDaemonReload") == "yes" for state in seen.values())}
