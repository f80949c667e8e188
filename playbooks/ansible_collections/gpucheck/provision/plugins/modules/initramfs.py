#!/usr/bin/python
"""Put the module files of a plan into the host's initramfs, and note the reboot that they wait for."""

DOCUMENTATION = r"""
module: initramfs
short_description: Rebuild the initramfs after module files changed, and note that a reboot is due
description:
  - With the program of the system, for all kernels. A host that boots without an initramfs gets the note alone.
  - Returns the same as C(plan_state), for the host's state afterwards.
options:
  host:
    description: The host's name in the inventory, for messages.
    type: str
    required: true
  plan:
    description: The host's plan, schema gpucheck.plan/1.
    type: dict
    required: true
attributes:
  check_mode:
    description: Reports that it would rebuild.
    support: full
notes:
  - Why this module exists. M(ansible.builtin.command) with the program of each system leaves no note of the reboot
    that is due.
author: gpucheck
"""

EXAMPLES = r"""
- name: Rebuild the initramfs
  gpucheck.provision.initramfs:
    host: "{{ inventory_hostname }}"
    plan: "{{ host_plan }}"
  become: true
"""

RETURN = r"""
differences:
  description: What still differs from the plan, sentences by role; see C(plan_state).
  returned: success
  type: dict
  contains:
    "*": {description: Sentences of one role., type: list, elements: str}
components:
  description: What differs by package component; see C(plan_state).
  returned: success
  type: dict
  contains:
    "*":
      description: What differs of one component.
      type: dict
      contains: {packages: {description: Sentences., type: list, elements: str}}
reboot:
  description: Why a reboot is due now.
  returned: success
  type: list
  elements: str
host:
  description: What else the roles need; see C(plan_state).
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpucheck.provision.plugins.module_utils import host_plan, place
from ansible_collections.gpucheck.provision.plugins.module_utils.call import Refused, call, explained
from ansible_collections.gpucheck.provision.plugins.module_utils.compare import compare
from ansible_collections.gpucheck.provision.plugins.module_utils.readers.system import os_release, package_family

NOTE = b"module files changed since the last boot\n"


def rebuild(module, family):
    """Rebuild every initramfs of the host. Raises Refused, also if there are images but no program to rebuild them."""
    words, images = host_plan.initramfs(family)
    if words:
        call(module, words)
    elif images:
        raise Refused(
            "/boot has an initramfs, but neither update-initramfs nor dracut is installed to add the module files to "
            "it. Install the one that this system uses"
        )


def main():
    """Rebuild, then note, then look."""
    module = AnsibleModule(
        argument_spec={"host": {"type": "str", "required": True}, "plan": {"type": "dict", "required": True}},
        supports_check_mode=True,
    )
    host, plan = module.params["host"], module.params["plan"]
    refused = "the initramfs cannot be rebuilt: {}. The host was not rebooted; repair that, then run again."
    with explained(module, host, refused):
        if not module.check_mode:
            rebuild(module, package_family(os_release()))
            # In this order: a run that is cut off in between rebuilds once too often, and never forgets the reboot.
            place.put(module, host_plan.REBOOT_REQUIRED, NOTE)
            place.remove(host_plan.INITRAMFS_PENDING)
        state = compare(host, plan, "")
    module.exit_json(changed=True, **state)


if __name__ == "__main__":
    main()
