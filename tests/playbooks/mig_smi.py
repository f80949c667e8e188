#!/usr/bin/python3
"""Stand-in for nvidia-smi's MIG commands, on two GPUs; the rest is the host's own nvidia-smi. SIMULATED.

The layout is in $MIG_STATE (default /run/mig.json, which no reboot survives). Tables as the real program prints them.
$MIG_FULL: a profile that cannot be created.
"""

import json
import os
import re
import sys
from pathlib import Path

STATE = Path(os.environ.get("MIG_STATE", "/run/mig.json"))
NAMES = {"19": "1g.10gb", "14": "2g.20gb", "9": "3g.40gb"}
SIZES = {"19": 1, "14": 2, "9": 4}
COMPUTES = {"0": "1c.{}", "1": "2c.{}", "2": "{}"}
FRAME = "+" + "-" * 60 + "+"


def read():
    """modes: by GPU. instances: [GPU, profile, ID, start, [[compute profile, ID, start], ...]]."""
    return json.loads(STATE.read_text()) if STATE.exists() else {"modes": ["Disabled"] * 2, "instances": []}


def create(state, gpu, words):
    for word in words.split(","):
        profile, _, start = word.partition(":")
        if profile == os.environ.get("MIG_FULL"):
            print("Unable to create a GPU instance on GPU  0: Insufficient Resources")
            return 19
        number = 13 - sum(row[0] == gpu for row in state["instances"])
        state["instances"].append([gpu, profile, number, int(start or 0), []])
        made = f"Successfully created GPU instance ID {number:>2} on GPU {gpu:>2}"
        print(f"{made} using profile MIG {NAMES[profile]} (ID {profile:>2})")
    return 0


def compute(state, gpu, number, words):
    (row,) = (row for row in state["instances"] if row[0] == gpu and row[2] == number)
    for place, profile in enumerate(words.split(",")):
        row[4].append([profile, place, place])
    print(f"Successfully created compute instance ID  0 on GPU {gpu:>2} GPU instance ID {number:>2}")
    return 0


def listed(state, computes):
    if not state["instances"]:
        print("No GPU instances found: Not Found")
        return 6
    print(FRAME, "| GPU instances:                                             |", FRAME.replace("-", "="), sep="\n")
    for gpu, profile, number, start, parts in state["instances"]:
        name = NAMES[profile]
        if not computes:
            print(f"|   {gpu}  MIG {name:<14} {profile:>4}   {number:>6}   {start:>8}:{SIZES[profile]}     |")
        for kind, ident, place in reversed(parts) if computes else ():
            called = COMPUTES[kind].format(name)
            print(f"|   {gpu}   {number:>4}       MIG {called:<14} {kind:>4} {ident:>8} {place:>10}:1     |")
    print(FRAME)
    return 0


def main(words):
    """Run what was asked for; the layout is written back."""
    state, line = read(), " ".join(words)
    if "mig.mode.current" in line:
        for gpu, mode in enumerate(state["modes"]):
            print(f"{gpu}, {mode}, {mode}")
        return 0
    gpu = re.search(r"-i (\d+)", line)
    if "mig" not in words and "-mig" not in words:
        os.execv("/usr/bin/nvidia-smi", ["nvidia-smi", *words])  # noqa: S606 # the host's own
    if words[-2:-1] == ["-mig"]:
        state["modes"][int(gpu[1])] = "Enabled"
        print(f"Enabled MIG Mode for GPU {gpu[1]}\nAll done.")
        status = 0
    elif "-cgi" in words:
        status = create(state, int(gpu[1]), words[-1])
    elif "-cci" in words:
        status = compute(state, int(gpu[1]), int(re.search(r"-gi (\d+)", line)[1]), words[-1])
    else:
        return listed(state, "-lci" in words)
    STATE.write_text(json.dumps(state))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
