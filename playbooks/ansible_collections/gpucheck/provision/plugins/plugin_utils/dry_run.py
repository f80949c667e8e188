"""What a run would do to each host, from its plan, its comparison with it, and its package manager's simulation.

Runs on the controller. A host may have returned anything: its text is shown on one line, and nothing of it is acted on.
"""

import json
import re

from .node_result import one_line

SCHEMA = "gpucheck.dry-run/1"
NO_SOURCES = "the package sources are not set up on the host yet, so dependencies are not listed"
TORCH_BYTES = 3_000_000_000
# As in module_utils/host_plan.py and module_utils/record.py.
OTHER_VERSION = re.compile(r" is (?P<before>\S+), planned (?P<version>\S+)$")
UNPLANNED = re.compile(r"^(?P<name>[^\s/]\S*) (?P<before>\S+) is no longer planned$")


def plain(value):
    return json.loads(json.dumps(value, default=str))


def texts(value):
    return [one_line(word, 300) for word in value] if isinstance(value, list) else []


def mapping(value):
    return value if isinstance(value, dict) else {}


def planned_moves(plan, state):
    """Rows of packages that differ from the plan, each with its spec: what is known without asking a source."""
    found, components = [], mapping(state.get("components"))
    for name, part in (plan.get("components") or {}).items():
        messages = texts(mapping(components.get(name)).get("packages"))
        for package in part.get("packages") or ():
            words = next((word for word in messages if word.startswith(package["name"] + " ")), "")
            other = OTHER_VERSION.search(words)
            if words:
                verb, before = ("change", other.group("before")) if other else ("install", "")
                found.append({**move(verb, package["name"], before, package["version"]), "spec": package["spec"]})
    host = mapping(state.get("host"))
    for key in ("headers_missing", "prerequisites_missing", "compilers_missing"):
        found += [
            move("install", name) for name in texts(host.get(key)) if "driver" in mapping(state.get("differences"))
        ]
    return found


def move(verb, name, before="", version=""):
    return {"verb": verb, "name": name, "before": before or "", "version": version or ""}


def simulated_moves(prepared):
    """Rows of the simulation, None if there was none."""
    rows = prepared.get("transaction")
    if not isinstance(rows, list) or prepared.get("moves_unknown"):
        return None
    return [
        move(*(one_line(mapping(row).get(key) or "", 200) for key in ("verb", "name", "before", "version")))
        for row in rows
    ]


def removed_later(state):
    matches = map(UNPLANNED.match, texts(mapping(state.get("differences")).get("cleanup")))
    return [move("remove", found.group("name"), found.group("before")) for found in matches if found]


def left_behind(state):
    host, differences = mapping(state.get("host")), mapping(state.get("differences"))
    pairs = [word.split(" ", 1) for word in texts(host.get("strays")) if "driver" in differences and " " in word]
    return [move("remove", name, version) for name, version in pairs]


def indexed_bytes(moves, group):
    """Bytes of the planned packages in the repository indexes, None if those were not read."""
    sizes = {row["spec"]: row["size"] for row in group.get("packages") or () if row.get("state") == "present"}
    wanted = [row["spec"] for row in moves if "spec" in row]
    if not set(wanted) <= set(sizes):
        return None
    # All of them: then also the dependencies from the same repositories.
    return group["download_bytes"] if wanted and set(wanted) == set(sizes) else sum(sizes[spec] for spec in wanted)


def reboots(plan, state):
    """Why a run would reboot the host, as far as it can be known before."""
    host, differences = mapping(state.get("host")), mapping(state.get("differences"))
    driver, expected = mapping(host.get("driver")), mapping(plan.get("expected"))
    found = texts(state.get("reboot"))
    if "driver" in differences and not found:
        loaded = (driver.get("loaded_version"), driver.get("loaded_flavour"))
        planned = (expected.get("driver_version"), expected.get("kernel_module"))
        if loaded[0] and loaded != planned:
            words = " ".join(one_line(word or "unknown", 60) for word in (*loaded, "is loaded, planned", *planned))
            found.append(f"module {words}")
        elif host.get("wrong_initramfs_files") or host.get("initramfs_pending"):
            found.append("module files in the initramfs change")
    if "kernel_arguments" in differences and not found:
        found.append("kernel arguments change")
    return found


def unconfirmed(plan, group):
    """What of the plan no record shows. in_index: whether the index that was just read has it, None: not looked up."""
    present = {row["spec"] for row in group.get("packages") or () if row.get("state") == "present"}
    rows = plan.get("unconfirmed") or ()
    return [
        {"component": row["component"], "spec": row["spec"], "in_index": row["spec"] in present or None} for row in rows
    ]


def row_of(known):
    """The entry of a host in plan.json.

    known: plan, state (of plan_state), prepared (of planned_packages), ``told`` (of stack_plans), group (of comparison
    with the repositories), bundled, drain, simulated, local.
    """
    plan, state, prepared, planned = known["plan"], known["state"], known["prepared"], known["told"]
    simulated = simulated_moves(prepared)
    moves = planned_moves(plan, state) if simulated is None else simulated
    if known["bundled"]:
        size, origin = 0, "bundle"
    elif simulated is None:
        size, origin = indexed_bytes(moves, known["group"]), "repository index"
    else:
        size, origin = prepared.get("download_bytes"), "simulation"
    named = {row["name"] for row in moves}
    later = removed_later(state) + ([] if simulated is None else left_behind(state))
    moves = [*moves, *(row for row in later if row["name"] not in named)]
    differences = mapping(state.get("differences"))
    unknown = one_line(prepared.get("moves_unknown") or "", 300) or NO_SOURCES
    reboot = reboots(plan, state)
    return {
        "group": plan["group"],
        "simulated": known["simulated"],
        "packages": [{key: value for key, value in found.items() if key != "spec"} for found in moves],
        "packages_from": "plan" if simulated is None else "simulation",
        "packages_unknown": unknown if simulated is None else None,
        "download_bytes": size,
        "download_from": origin,
        "torch_bytes": TORCH_BYTES if planned.get("downloads") else 0,
        "changes": {one_line(role, 60): len(texts(words)) for role, words in differences.items()},
        "reboot": reboot,
        "reboot_by_hand": bool(reboot and known["local"]),
        "drain": known["drain"] if {"driver", "kernel_arguments"} & set(differences) else None,
        "unconfirmed": unconfirmed(plan, known["group"]),
    }
