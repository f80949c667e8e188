"""Options of the nvidia module: those of the plan against those that the loaded module runs with."""

import re

from .readers.files import text

OPTIONS_FILE = "/etc/modprobe.d/gpucheck-nvidia.conf"
# The active options; the driver omits the prefix.
PARAMS = "/proc/driver/nvidia/params"
OPTION = re.compile(r'NVreg_(\w+)=("[^"]*"|\S+)')


def not_in_force(plan, path=PARAMS):
    """Return messages for planned module options that the loaded module lacks; empty if none is loaded."""
    seen = dict(line.partition(":")[::2] for line in (text(path) or "").splitlines())
    if not seen:
        return []
    words = []
    for name, value in OPTION.findall(planned(plan)):
        now = seen.get(name)
        if now is None:
            words.append("the loaded module has no option NVreg_{}".format(name))
        elif number(now.strip(' "')) != number(value.strip('"')):
            words.append("the module option NVreg_{} is {}, planned {}".format(name, now.strip(), value.strip('"')))
    return words


def planned(plan):
    """The content of the planned file of module options, "" where there is none."""
    return "".join(row["content"] for row in plan["files"] if row["path"] == OPTIONS_FILE)


def number(value):
    """The value as a number where it is one: the driver shows 0x10 as 16."""
    try:
        return int(value, 0)
    except ValueError:
        return value
