#!/usr/bin/python
"""Read everything the stack resolver needs to know about a host, in one round trip."""

DOCUMENTATION = r"""
module: gpu_facts
short_description: Read GPUs, driver, kernel and NVIDIA packages of a host in one round trip
description:
  - Returns the host facts (schema gpucheck.facts/1) that C(gpucheck stack lock) reads.
  - Needs only Python's standard library on the host, no lspci and no root. Never changes anything.
options:
  host:
    description: The host's name in the inventory, written into the facts.
    type: str
    required: true
attributes:
  check_mode:
    description: Reads only, so check mode makes no difference.
    support: full
author: gpucheck
"""

EXAMPLES = r"""
- name: Read the host
  gpu_facts:
    host: "{{ inventory_hostname }}"
  register: gpu_facts_read
"""

RETURN = r"""
facts:
  description: The facts, schema gpucheck.facts/1.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.gpu_host import Unreadable, read_facts  # noqa: E402


def main():
    """Read, answer, change nothing."""
    module = AnsibleModule(argument_spec={"host": {"type": "str", "required": True}}, supports_check_mode=True)
    host = module.params["host"]
    try:
        facts, _ = read_facts(host)
    except Unreadable as error:
        module.fail_json(msg="{}: this host cannot be read: {}".format(host, error))
    module.exit_json(changed=False, facts=facts)


if __name__ == "__main__":
    main()
