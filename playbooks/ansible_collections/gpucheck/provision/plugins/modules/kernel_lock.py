#!/usr/bin/python
"""Hold the host's kernel packages as planned, or lift the holds that gpucheck set."""

DOCUMENTATION = r"""
module: kernel_lock
short_description: Hold the kernel packages of a host, or remove exactly the holds set by gpucheck
description:
  - With C(kernel_lock) hold in the plan, every installed kernel package is held (apt-mark), or locked to the versions
    that are installed (dnf versionlock). Without it, the holds that this module set are lifted.
  - A hold that existed before is neither recorded nor removed.
  - New holds are recorded on the host first, so that an interrupted run leaves no unrecorded hold.
options:
  plan: {type: dict, required: true, description: "The host's plan, schema gpucheck.plan/1."}
notes:
  - Why this module exists. M(ansible.builtin.dpkg_selections) takes one package per call, and mixes its holds with
    those of an administrator.
author: gpucheck
"""

RETURN = r"""
missing: {returned: success, type: list, elements: str, description: Package names (apt) or version lock entries (dnf)
  that were set.}
lifted: {returned: success, type: list, elements: str, description: Those that were lifted.}
ours: {returned: success, type: list, elements: str, description: Holds that are now set by gpucheck.}
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import kernel
from ..module_utils.call import Refused, call
from ..module_utils.host import read_facts
from ..module_utils.place import as_bytes, write
from ..module_utils.readers.files import Unreadable

SET = {"apt": ["apt-mark", "hold"], "dnf": ["dnf", "--quiet", "versionlock", "add", "--raw"]}
LIFT = {"apt": ["apt-mark", "unhold"], "dnf": ["dnf", "--quiet", "versionlock", "delete", "--raw"]}


def note(module, holds):
    """Record the managed holds; without any, remove the record."""
    if holds:
        write(module, kernel.NOTE, as_bytes({"schema": "gpucheck.kernel-lock/1", "holds": sorted(holds)}))
    elif os.path.exists(kernel.NOTE):
        os.unlink(kernel.NOTE)


def change(module, argv):
    """Run the package manager. Fails the task with its error message."""
    try:
        call(module, argv, shown=" ".join(argv[:4]))
    except Refused as error:
        words = str(error).rstrip(".")
        module.fail_json(msg="the kernel holds could not be changed: {}. Repair that, then run again.".format(words))


def apply(module, manager, seen, managed):
    """Set what is missing, lift what is no longer planned; one call each."""
    if seen["missing"]:
        note(module, set(managed) | set(seen["missing"]))
        change(module, SET[manager] + seen["missing"])
    if seen["lifted"]:
        change(module, LIFT[manager] + seen["lifted"])
    note(module, seen["ours"])


def main():
    """Compare, then change what differs."""
    module = AnsibleModule(argument_spec={"plan": {"type": "dict", "required": True}}, supports_check_mode=True)
    plan = module.params["plan"]
    try:
        facts, extras = read_facts("host")
        managed = kernel.noted()
        seen = kernel.state(plan, facts["holds"], extras, managed)
        changed = bool(kernel.differences(seen, managed))
        if changed and not module.check_mode:
            apply(module, plan["package_manager"], seen, managed)
    except Unreadable as error:
        module.fail_json(msg="this host cannot be read: {}".format(error))
    except OSError as error:
        module.fail_json(msg="the record of kernel holds cannot be written: {}. Free space there.".format(error))
    module.exit_json(changed=changed, **seen)


if __name__ == "__main__":
    main()
