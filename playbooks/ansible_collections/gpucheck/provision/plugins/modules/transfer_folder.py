#!/usr/bin/python
"""Create or remove a private folder for files in transfer. The action plugin of the same name chooses its name."""

DOCUMENTATION = r"""
module: transfer_folder
short_description: Create or remove a private folder on a host, whose name the controller chooses
description:
  - Creates C(/var/tmp/gpucheck-transfer-) and 32 random digits with mode 0700, and fails if that exists.
  - Removes what an interrupted run of the same user left there more than a day ago.
options:
  state:
    description: Create a folder, or remove the one named by O(path).
    type: str
    choices: [present, absent]
    default: present
  path:
    description: The folder to remove. A name of a new folder is chosen by the controller.
    type: path
attributes:
  check_mode:
    description: Does nothing in check mode.
    support: none
notes:
  - Why this module exists. With M(ansible.builtin.tempfile) the host chooses the name, and a name in a transfer is
    read by programs on the controller.
author: gpucheck
"""

EXAMPLES = r"""
- name: Create a transfer folder
  gpucheck.provision.transfer_folder:
  register: created

- name: Remove the transfer folder
  gpucheck.provision.transfer_folder:
    state: absent
    path: "{{ created.path }}"
"""

RETURN = r"""
path:
  description: The folder, as the controller named it.
  returned: when created, added by the controller
  type: str
"""

import os
import shutil
import stat
import time

from ansible.module_utils.basic import AnsibleModule

PREFIX = "gpucheck-transfer-"
DAY_S = 86400


def remove_old(parent):
    """Remove folders of this user that an interrupted run left."""
    for name in sorted(os.listdir(parent)):
        path = os.path.join(parent, name)
        try:
            found = os.lstat(path)
        except OSError:
            continue
        own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        if name.startswith(PREFIX) and own and time.time() - found.st_mtime > DAY_S:
            shutil.rmtree(path, ignore_errors=True)


def main():
    """Create, or remove."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "path": {"type": "path"},
        },
        supports_check_mode=True,
    )
    path = module.params["path"]
    try:
        if module.params["state"] == "absent":
            shutil.rmtree(path)
        else:
            remove_old(os.path.dirname(path))
            # Fails where anything has this name, a link too.
            os.mkdir(path, 0o700)
    except OSError as error:
        hint = "Free space there or make it writable, then run again."
        verb = "removed" if module.params["state"] == "absent" else "created"
        module.fail_json(msg="{} cannot be {}: {}. {}".format(path, verb, error.strerror, hint))
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
