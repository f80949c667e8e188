"""The kernel's arguments: planned ones that a boot entry or the running kernel lacks, managed ones to remove.

kernel-arguments.json   added: arguments added by gpucheck; removed: arguments removed, until a boot without them
"""

import os
import re
import shutil

from . import isolation
from .host_plan import same_file
from .place import stored
from .readers.files import Unreadable, command, text

NOTE = "var/lib/gpucheck/kernel-arguments.json"
GRUB_CONFIG = "boot/grub/grub.cfg"
# What regenerates the boot entries, by package manager.
TOOLS = {"apt": "update-grub", "dnf": "grubby"}
# The kernels of this system. Memory tests, other systems and entries of a person get no argument from update-grub.
OWN = re.compile(r"^### BEGIN /etc/grub.d/10_linux\w* ###$(.*?)^### END", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^\s*linux(?:efi|16)?\s+\S+\s*(.*)$", re.MULTILINE)
# Entries for repair keep the host's original arguments, for recovery.
RECOVERY = re.compile(r"\b(recovery|single)\b")
GRUBBY = re.compile(r'^args="(.*)"$', re.MULTILINE)


def wanted(plan):
    return ((plan.get("tuning") or {}).get("boot") or {}).get("arguments") or []


def noted(root="/"):
    """(added, removed) of the note."""
    note = stored(os.path.join(root, NOTE))
    return note.get("added") or [], note.get("removed") or []


def entries(manager, root="/"):
    """The arguments of every normal boot entry, as lines; none where they cannot be read."""
    if manager == "apt":
        menu = text(os.path.join(root, GRUB_CONFIG)) or ""
        lines = ENTRY.findall("\n".join(OWN.findall(menu)) or menu)
        return [line for line in lines if not RECOVERY.search(line)]
    try:
        return [line for line in GRUBBY.findall(command(["grubby", "--info=ALL"])) if not RECOVERY.search(line)]
    except Unreadable:
        return []


def decide(arguments, note, lines, running):
    """What is to be done. note: (added, removed); lines: those of the boot entries; running: /proc/cmdline.

    add: arguments that an entry lacks. drop: managed, no longer planned. lacking, lingering: what keeps the running
    kernel from being as planned, which only a boot can change. A removed argument that an entry has
    again was set by another tool or user.
    """
    added, removed = note
    present = [line.split() for line in lines]
    now = running.split()
    drop = [word for word in added if word not in arguments]
    gone = [word for word in removed if not any(word in line for line in present)]
    return {
        "add": [word for word in arguments if not present or any(word not in line for line in present)],
        "drop": drop,
        "lacking": [word for word in arguments if word not in now],
        "lingering": [word for word in dict.fromkeys(drop + gone) if word in now and word not in arguments],
    }


def after(note, add, drop):
    """Return the note after the change: added arguments are managed, removed ones count until a boot without them."""
    added, removed = note
    kept = [word for word in dict.fromkeys(list(added) + list(add)) if word not in drop]
    gone = [word for word in dict.fromkeys(list(removed) + list(drop)) if word not in kept]
    return {"added": kept, "removed": gone}


def state(plan, root="/"):
    """What the role acts on: see decide; during, after: the note; write, file_wrong: of the file for update-grub."""
    arguments, note = wanted(plan), noted(root)
    running = text(os.path.join(root, "proc/cmdline")) or ""
    lines = entries(plan["package_manager"], root) if arguments or any(note) else []
    seen = decide(arguments, note, lines, running)
    grub = ((plan.get("tuning") or {}).get("boot") or {}).get("grub")
    # If another file already sets the arguments, no managed file is needed.
    managed = bool(note[0]) and bool(grub) and plan["package_manager"] == "apt"
    wrong = managed and not same_file(os.path.join(root, grub["path"].lstrip("/")), grub["content"], grub["mode"])
    then = after(note, seen["add"], seen["drop"])
    more = {"during": after(note, seen["add"], []), "after": then, "write": bool(then["added"] and grub)}
    return dict(seen, file_wrong=wrong, **more)


def reboot_reasons(seen):
    found = ["the kernel runs without {}".format(" ".join(seen["lacking"]))] if seen["lacking"] else []
    return found + (["the kernel still runs with {}".format(" ".join(seen["lingering"]))] if seen["lingering"] else [])


def differences(seen):
    words = ["kernel arguments {} are missing in a boot entry".format(" ".join(seen["add"]))] if seen["add"] else []
    if seen["drop"]:
        words.append("kernel arguments {} are no longer planned".format(" ".join(seen["drop"])))
    if seen["file_wrong"]:
        words.append("the file with the kernel arguments for boot entries is missing or different")
    return words + ["reboot needed: " + reason for reason in reboot_reasons(seen)]


def refusals(plan):
    found = isolation.refusals(plan)
    tool = TOOLS[plan["package_manager"]]
    if wanted(plan) and not found and not shutil.which(tool):
        found.append(
            f"tuning requires kernel arguments ({' '.join(wanted(plan))}), but this host has no {tool} to configure "
            "its boot loader. Set them by hand in that boot loader and set iommu: leave in stack.yml, or install "
            "GRUB's tools"
        )
    return found
