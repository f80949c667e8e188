"""What runs against what is planned: the driver's library as the loader finds it, options of its module, services.

A package manager renews links and cache at the end of a transaction. One that is cut off right before leaves every
package in its planned version, and a link to the library of the version before.
"""

import os
import re
import shutil

from .host import image
from .readers.files import Unreadable, command, run, text
from .readers.programs import cached_libraries, units

LIBRARY = "libnvidia-ml.so.1"
# Looked into after the cache (ld.so(8)).
FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


def library_lost(folders=FOLDERS):
    """True where no path that the loader would try leads to a file; False also where there is no loader to ask.

    Raises Unreadable where the loader's cache is damaged.
    """
    program = shutil.which("ldconfig")
    if program is None:
        return False
    paths = [row.path for row in cached_libraries(command([program, "-p"])) if row.soname == LIBRARY]
    return not any(os.path.exists(path) for path in paths + [os.path.join(folder, LIBRARY) for folder in folders])


OPTIONS_FILE = "/etc/modprobe.d/gpucheck-nvidia.conf"
# The active options; the driver omits the prefix.
PARAMS = "/proc/driver/nvidia/params"
OPTION = re.compile(r'NVreg_(\w+)=("[^"]*"|\S+)')
# The one that the driver shows under another name (nv-reg.h of its source).
SHOWN_AS = {"RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}


def not_in_force(plan, path=PARAMS):
    """Return messages for planned module options that the loaded module lacks; empty if none is loaded."""
    seen = dict(line.partition(":")[::2] for line in (text(path) or "").splitlines())
    if not seen:
        return []
    words = []
    planned = "".join(row["content"] for row in plan["files"] if row["path"] == OPTIONS_FILE)
    for name, value in OPTION.findall(planned):
        now = seen.get(SHOWN_AS.get(name, name))
        if now is None and not hidden(name):
            words.append(f"the loaded module has no option NVreg_{name}")
        elif now is not None and number(now.strip(' "')) != number(value.strip('"')):
            words.append("the module option NVreg_{} is {}, planned {}".format(name, now.strip(), value.strip('"')))
    return words


def number(value):
    """The value as a number where it is one: the driver shows 0x10 as 16, 0660 as 432 and -1 as 4294967295."""
    octal = re.match(r"0[0-7]+\Z", value)
    try:
        return int(value, 8 if octal else 0) & 0xFFFFFFFF
    except ValueError:
        return value


def hidden(name):
    """Whether the module has this option and does not show it, such as RmNvlinkBandwidth."""
    try:
        return f"NVreg_{name}:" in command(["modinfo", "-F", "parm", "nvidia"])
    except Unreadable:
        return False


# What counts as enabled, both for the comparison and for the change.
ENABLED = ("enabled", "static", "enabled-runtime")
FIELDS = "Id,LoadState,ActiveState,UnitFileState,NeedDaemonReload"


def states(names):
    """systemd's FIELDS of each unit, in one call; an error's words in place of them where it cannot be asked."""
    if not names:
        return {}
    if image():
        return {name: offline(name) for name in names}
    try:
        shown = command(["systemctl", "show", "--no-pager", "-p", FIELDS] + [name + ".service" for name in names])
    except Unreadable as error:
        return {name: {"error": str(error)} for name in names}
    return dict(zip(names, units(shown)))


def offline(name):
    """The fields of a unit in an image: whether it is enabled, and nothing of it runs."""
    said = run(["systemctl", "is-enabled", name + ".service"]).stdout.strip()
    found = {"UnitFileState": said, "LoadState": said if said == "masked" else "loaded" if said else "not-found"}
    return dict(found, ActiveState="inactive")


def differences(plan, seen):
    """Services that are not enabled or not running as planned. seen: of ``states``."""
    words = []
    for row in plan["services"]:
        state = seen.get(row["name"], {})
        if "error" in state:
            return ["services cannot be read: {}".format(state["error"])]
        active = state.get("ActiveState", "unknown")
        if row["state"] == "started" and active != "active" and not image():
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
