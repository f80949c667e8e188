#!/usr/bin/python
"""Documentation of send_files; the action plugin of the same name does the work on the controller."""

DOCUMENTATION = r"""
module: send_files
short_description: Copy many and large files to a host, each in one transfer
description:
  - Copies as the login user, without the round trips of M(ansible.builtin.copy) for every file. Nothing
    is compared; the recipient must verify the files.
options:
  files:
    description: By path of a file here, its name there.
    type: dict
    required: true
  dest:
    description: An existing folder there that the login user may write.
    type: str
    required: true
attributes:
  check_mode:
    description: Does nothing in check mode.
    support: none
notes:
  - Why this module exists. M(ansible.builtin.copy) takes several round trips per file, and
    M(ansible.posix.synchronize) needs rsync on both sides.
author: gpucheck
"""

EXAMPLES = r"""
- name: Send a package
  gpucheck.provision.send_files:
    files: {/srv/bundle/libnccl2.deb: libnccl2.deb}
    dest: /var/tmp/arriving
"""

RETURN = "# nothing"
