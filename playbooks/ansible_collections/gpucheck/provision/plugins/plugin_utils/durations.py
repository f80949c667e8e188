"""How long hosts took to change: kept in reports_dir from run to run, and what a plan expects from it.

Runs on the controller. By host a list of rows, the last of each kind of change: {group, roles, reboots, seconds,
ended}; seconds are those of the host's own tasks, up to the end of its change.
"""

import json
import math
from pathlib import Path

from ansible_collections.gpucheck.provision.plugins.plugin_utils import files

SCHEMA = "gpucheck.durations/1"
FILE = "durations.json"
# Where no comparable host was measured. Packages and torch: 1.6 GB of CUDA in 161 s and 2.9 GB of torch in 159 s,
# downloaded and installed; DKMS: 306 s; each in a container with 2 cores. A reboot is what a server takes for its
# power-on tests; the slow ones have NVSwitches, 8 GPUs or 1 TB of memory.
PACKAGES_MB_S, TORCH_MB_S = 10, 18
BUILD_S, BOOT_S, SLOW_BOOT_S, OTHER_S = 310, 300, 1200, 60
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


def estimate(row, history):
    """(seconds, measured row or None) for a row of dry_run: the slowest change of the same kind, else assumed."""
    wanted = kind(row["group"], row["changes"], row["reboot"])
    matching = [found for kept in history.values() for found in kept if kind_of(found) == wanted]
    if matching:
        slowest = max(matching, key=lambda found: found["seconds"])
        return math.ceil(slowest["seconds"]), slowest
    seconds = OTHER_S + (row["download_bytes"] or 0) / PACKAGES_MB_S / 1e6 + row["torch_bytes"] / TORCH_MB_S / 1e6
    seconds += BUILD_S if row["builds_module"] else 0
    seconds += (SLOW_BOOT_S if row["slow_boot"] else BOOT_S) if row["reboot"] else 0
    return math.ceil(seconds), None


def assumptions():
    """The numbers that an estimate without a measured host uses, as text."""
    return (
        f"packages {PACKAGES_MB_S} MB/s, torch {TORCH_MB_S} MB/s, module build {BUILD_S} s, reboot {BOOT_S} s (slow "
        f"machines {SLOW_BOOT_S} s), other {OTHER_S} s"
    )
