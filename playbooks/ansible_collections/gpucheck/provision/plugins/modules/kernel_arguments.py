#!/usr/bin/python
"""Add arguments to the kernel's command line of every boot entry, and remove managed ones no longer planned."""

DOCUMENTATION = r"""
module: kernel_arguments
short_description: Change the kernel arguments of all boot entries
description:
  - On apt hosts by a file in /etc/default/grub.d, which their grub-mkconfig reads, and update-grub; on dnf hosts by
    grubby. Entries for recovery keep the arguments they came with on apt hosts.
  - Added arguments are recorded on the host first, so that they can be removed again, also after an interrupted run.
    Arguments that a boot entry already has are never recorded and never removed.
  - Takes effect at the next boot; nothing is rebooted.
options:
  plan: {type: dict, required: true, description: "The host's plan, schema gpucheck.plan/1; without tuning, arguments
    set by gpucheck are removed."}
notes:
  - Why this module exists. M(ansible.builtin.lineinfile) and grubby differ per system, and neither records which
    arguments were added.
author: gpucheck
"""

RETURN = r"""
added: {returned: success, type: list, elements: str, description: Arguments that an entry lacked.}
dropped: {returned: success, type: list, elements: str, description: Arguments set by gpucheck that are no longer
  planned.}
reboot: {returned: success, type: list, elements: str, description: Reasons for a reboot.}
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import boot
from ..module_utils.place import as_bytes, write


def grub_file(module, plan, note, root):
    """Write the managed file, or remove it if no argument is managed."""
    grub = ((plan.get("tuning") or {}).get("boot") or {}).get("grub")
    if note["added"] and grub:
        path = os.path.join(root, grub["path"].lstrip("/"))
        write(module, path, grub["content"].encode("utf-8"), int(grub["mode"], 8))
    elif os.path.exists(os.path.join(root, boot.GRUB_FILE)):
        os.unlink(os.path.join(root, boot.GRUB_FILE))


def commands(manager, add, drop):
    """Return the calls that regenerate the boot entries."""
    if manager == "apt":
        return [["update-grub"]]
    words = ["--args=" + " ".join(add)] if add else []
    words += ["--remove-args=" + " ".join(drop)] if drop else []
    return [["grubby", "--update-kernel=ALL", *words]] if words else []


def apply(module, plan, seen, root="/"):
    """Write the note and the file, update the boot loader. Fails the task with the program's error message."""
    note_path = os.path.join(root, boot.NOTE)
    note = boot.noted(root)
    # The note is written first, so that an interrupted run can be reverted; removed arguments stay noted till then.
    managed = boot.after(note, seen["add"], [])
    write(module, note_path, as_bytes(managed), 0o644)
    done = boot.after(note, seen["add"], seen["drop"])
    if plan["package_manager"] == "apt":
        grub_file(module, plan, done, root)
    for argv in commands(plan["package_manager"], seen["add"], seen["drop"]):
        status, output, error = module.run_command(argv)
        if status:
            words = " ".join((error or output).split())
            hint = "The running kernel is not affected. Repair the boot loader's settings, then run again."
            module.fail_json(msg="{}: exit {}: {}. {}".format(" ".join(argv), status, words, hint))
    write(module, note_path, as_bytes(done), 0o644)


def main():
    """Change what differs."""
    module = AnsibleModule(argument_spec={"plan": {"type": "dict", "required": True}}, supports_check_mode=True)
    plan = module.params["plan"]
    seen = boot.state(plan)
    changed = bool(seen["add"] or seen["drop"] or seen["file_wrong"])
    if changed and not module.check_mode:
        apply(module, plan, seen)
    now = boot.state(plan)
    if changed and not module.check_mode and (now["add"] or now["drop"]):
        words = " ".join(now["add"] or now["drop"])
        hint = "Another file in /etc/default/grub.d, or another boot loader, overrides them: remove that."
        module.fail_json(msg="the boot entries are not as planned after they were written ({}). {}".format(words, hint))
    reboot = boot.reboot_reasons(now)
    module.exit_json(changed=changed, added=seen["add"], dropped=seen["drop"], reboot=reboot)


if __name__ == "__main__":
    main()
