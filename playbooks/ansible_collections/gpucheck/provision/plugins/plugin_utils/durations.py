"""How long hosts took to change: kept in reports_dir from run to run, and what a plan expects from it.

Runs on the controller. By host a list of rows, the last of each kind of change: {group, roles, reboots, seconds,
ended}; seconds are those of the host's own tasks, up to the end of its change.
"""

import json
from pathlib import Path

from . import files

SCHEMA = "gpucheck.durations/1"
FILE = "durations.json"
# Steps that decide how long a change takes.
HEAVY = frozenset({"driver", "gpucheck", "cuda"})


def read(folder):
    """Lists of rows by host, empty if there is no such file or it cannot be used."""
    try:
        found = json.loads((Path(folder) / FILE).read_text(encoding="utf-8"))
        rows = found["hosts"] if found["schema"] == SCHEMA else {}
        return {str(host): [row for row in kept if usable(row)] for host, kept in rows.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def usable(row):
    """Whether a row has the fields that an estimate uses."""
    numbers = isinstance(row, dict) and isinstance(row.get("seconds"), (int, float)) and row["seconds"] >= 0
    return numbers and isinstance(row.get("roles"), list) and isinstance(row.get("reboots"), int)


def kind(group, roles, reboot):
    """What two changes have in common that take about as long: the group, the heavy steps, and whether it rebooted."""
    return str(group), HEAVY & set(map(str, roles)), bool(reboot)


def kind_of(row):
    """The kind of a kept row."""
    return kind(row.get("group"), row["roles"], row["reboots"])


def write(folder, rows):
    """Add a row for each host, in place of its last one of the same kind; the file is written atomically.

    Raises OSError.
    """
    hosts = read(folder)
    for host, row in rows.items():
        hosts[host] = [*(old for old in hosts.get(host, ()) if kind_of(old) != kind_of(row)), row]
    document = {"schema": SCHEMA, "hosts": dict(sorted(hosts.items()))}
    files.write(Path(folder) / FILE, json.dumps(document, indent=1) + "\n")


def measured(row, history):
    """The kept row of the slowest change of the same kind as a row of dry_run, None if none was measured here."""
    wanted = kind(row["group"], row["changes"], row["reboot"])
    matching = [found for kept in history.values() for found in kept if kind_of(found) == wanted]
    return max(matching, key=lambda found: found["seconds"], default=None)
