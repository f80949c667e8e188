"""Container engines and the GPUs: which of the planned engines this host has, and which know the runtime nvidia.

engines.json    by path, what an engine's file was before nvidia-ctk wrote it (as ``kept`` has it), and the digest after
"""

import hashlib
import json
import os
import re
import shutil

from .place import stored
from .readers.files import text

RECORD = "/var/lib/gpucheck/engines.json"
RUNTIME = "nvidia"
# [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]; containerd 2: 'io.containerd.cri.v1.runtime'.
TABLE = re.compile(r"""^\s*\[[^\]#]*\.runtimes\.['"]?nvidia['"]?\s*\]""", re.MULTILINE)


def wanted(plan):
    return plan.get("container_engines") or []


def present(row):
    return all(shutil.which(program) for program in (row["program"], row.get("beside")) if program)


def here(plan):
    return [row for row in wanted(plan) if present(row)]


def knows_runtime(row):
    """Whether the engine's configuration names the runtime nvidia. Raises ValueError where it cannot be read."""
    if row["name"] == "docker":
        return RUNTIME in runtimes(row["files"][0])
    main, drop_in = (text(path) or "" for path in row["files"])
    # Additional files count only if the main file imports their directory.
    imported = os.path.dirname(row["files"][1]) in main and TABLE.search(drop_in)
    return bool(TABLE.search(main) or imported)


def runtimes(path):
    """The runtimes in Docker's configuration. Raises ValueError where that is not a JSON object of the right shape."""
    content = json.loads(text(path) or "{}")
    found = content.get("runtimes", {}) if isinstance(content, dict) else None
    if not isinstance(found, dict):
        raise ValueError("no object of settings with an object of runtimes")
    return found


def recorded():
    """Return the recorded files, by path; {} if no engine's configuration is managed."""
    return stored(RECORD).get("files") or {}


def digest(path):
    """SHA-256 of a file, None where it does not exist."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def to_undo(plan):
    """Return configured engines that the plan no longer configures, by the recorded paths."""
    kept = {path for row in wanted(plan) for path in row["files"]}
    return sorted(set(recorded()) - kept)


def state(plan):
    """What the role acts on: names of engines to configure, and sentences for configurations that cannot be read."""
    rows = [(row, why_unreadable(row)) for row in here(plan)]
    return {
        "missing": [row["name"] for row, why in rows if why is None and not knows_runtime(row)],
        "broken": [f"{row['files'][0]}: {why}" for row, why in rows if why is not None],
    }


def why_unreadable(row):
    """Why the engine's configuration cannot be read, None where it can."""
    try:
        knows_runtime(row)
    except ValueError as error:
        return str(error)
    return None


def refusals(plan):
    return [
        f"{message}: the engine does not start with this file, and no runtime can be added to it. Correct the file "
        "(python3 -m json.tool shows the place), or set container_engines: leave in stack.yml"
        for message in state(plan)["broken"]
    ]


def differences(plan):
    seen = state(plan)
    words = [f"{name} is not configured for the runtime {RUNTIME}" for name in seen["missing"]]
    return words + [f"{message} cannot be read" for message in seen["broken"]]


def left(plan):
    return [f"{path} contains the runtime {RUNTIME}, which is no longer planned" for path in to_undo(plan)]
