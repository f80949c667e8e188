#!/usr/bin/python
"""What of a plan is not yet true on a host, in one round trip."""

DOCUMENTATION = r"""
module: plan_state
short_description: Compare a host with its plan in one round trip
description:
  - Lists every difference between the host and its plan (schema gpucheck.plan/1), by the role that removes it.
  - An empty result means that nothing has to be done. Never changes anything.
options:
  host:
    description: The host's name in the inventory.
    type: str
    required: true
  plan:
    description: The plan that C(gpucheck stack plan --format json) printed, parsed.
    type: dict
    required: true
  digest:
    description: Digest of the requirement set gpucheck has to be installed from; empty leaves gpucheck out.
    type: str
    default: ""
  headers:
    description:
      - Query also whether the package sources offer the kernel headers that are missing, and packages with modules
        that the kernel lacks. On apt, if the host's lists lack one, fresh ones are fetched into a temporary folder.
      - The results are C(host.headers_unavailable) and C(host.modules_unavailable).
    type: bool
    default: false
attributes:
  check_mode:
    description: Reads only, so check mode makes no difference.
    support: full
notes:
  - Why this module exists. Check mode of the builtin modules takes one round trip per package, file and service.
author: gpucheck
"""

EXAMPLES = r"""
- name: Compare the host with its plan
  gpucheck.provision.plan_state:
    host: "{{ inventory_hostname }}"
    plan: "{{ host_plan }}"
  become: true
  register: host_state
"""

RETURN = r"""
differences:
  description: By role (repository driver cuda cudnn nccl container_toolkit container_engine dcgm gdrcopy acs
    kernel_arguments tuning kernel_lock gpucheck cleanup), sentences. Roles without one are omitted.
  returned: success
  type: dict
  contains:
    "*": {description: Sentences of one role., type: list, elements: str}
components:
  description: By package component, packages that differ, and holds to add (missing) or to remove first (stale).
  returned: success
  type: dict
  contains:
    "*":
      description: What differs of one component.
      type: dict
      contains: {packages: {description: Sentences., type: list, elements: str}}
reboot:
  description: Why a reboot is due now, by the plan's rule.
  returned: success
  type: list
  elements: str
host:
  description: What else the roles need (driver, kernel, busy processes, rival sources, free space, tools, unfinished
    packages, enabled module stream, files and services that differ).
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpucheck.provision.plugins.module_utils.call import explained
from ansible_collections.gpucheck.provision.plugins.module_utils.compare import changes, compare
from ansible_collections.gpucheck.provision.plugins.module_utils.headers import missing


def main():
    """Compare, return the result, change nothing."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "plan": {"type": "dict", "required": True},
            "digest": {"type": "str", "default": ""},
            "headers": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    host = module.params["host"]
    with explained(module, host):
        answer = compare(host, module.params["plan"], module.params["digest"])
        if module.params["headers"]:
            needed, more = answer["host"]["headers_missing"], answer["host"]["modules_packages"]
            absent = missing(needed + more, module.params["plan"]["package_manager"])
            answer["host"]["headers_unavailable"] = [name for name in absent if name in needed]
            answer["host"]["modules_unavailable"] = [name for name in absent if name in more]
    if module._diff:
        answer["diff"] = changes(module.params["plan"], answer)
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
