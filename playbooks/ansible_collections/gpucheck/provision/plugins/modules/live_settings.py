#!/usr/bin/python
"""Set what the running kernel shows as files: below /proc/sys and /sys.

copy replaces a file, which these do not allow. A loop of commands is one connection a file; a governor has one a CPU.
"""

DOCUMENTATION = r"""
module: live_settings
short_description: Write settings of the running kernel
description:
  - Writes each value into its file below /proc/sys or /sys, where it is active immediately and until the next boot.
  - An equal value is not written. If the kernel rejects a value, the task fails with its error.
options:
  settings:
    description: "Rows of C(path) and C(value)."
    type: list
    elements: dict
    required: true
attributes:
  check_mode:
    description: Reports what it would write.
    support: full
notes:
  - Why this module exists. C(ansible.posix.sysctl) writes /proc/sys only, one value per round trip;
    M(ansible.builtin.copy) replaces a file, which /sys does not allow.
author: gpucheck
"""

EXAMPLES = r"""
- name: Stop the kernel from moving pages between NUMA nodes
  gpucheck.provision.live_settings:
    settings:
      - {path: /proc/sys/kernel/numa_balancing, value: "0"}
  become: true
"""

RETURN = r"""
written:
  description: The paths that were, or would be, written.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpucheck.provision.plugins.module_utils.readers.files import text
from ansible_collections.gpucheck.provision.plugins.module_utils.tuning import current


def differing(settings):
    """Return the rows whose file has another value."""
    return [row for row in settings if current(text(row["path"]) or "") != row["value"]]


def write(module, path, value):
    """Write one value. Fails the task if the kernel rejects it."""
    try:
        with open(path, "w") as file:
            file.write(value)
    except OSError as error:
        module.fail_json(msg="{} = {}: rejected by the kernel: {}".format(path, value, error))


def main():
    """Write what differs."""
    module = AnsibleModule(
        argument_spec={"settings": {"type": "list", "elements": "dict", "required": True}}, supports_check_mode=True
    )
    rows = differing(module.params["settings"])
    for row in rows if not module.check_mode else []:
        write(module, row["path"], row["value"])
    module.exit_json(changed=bool(rows), written=[row["path"] for row in rows])


if __name__ == "__main__":
    main()
