#!/usr/bin/python
"""Documentation of fetch_files; the action plugin of the same name does the work on the controller."""

DOCUMENTATION = r"""
module: fetch_files
short_description: Copy many and large files from a host, each in one transfer
description:
  - Copies as the login user, and never reads a file whole into memory, as M(ansible.builtin.fetch) does for root.
    Nothing is compared; who uses them has to look whether they are what was there.
options:
  src:
    description: The folder there.
    type: str
    required: true
  dest:
    description: The folder here.
    type: str
    required: true
  files:
    description: Paths relative to both folders.
    type: list
    elements: str
    required: true
attributes:
  check_mode:
    description: Does nothing in check mode.
    support: none
author: gpucheck
"""

EXAMPLES = r"""
- name: Fetch a package
  fetch_files:
    src: /var/tmp/collected
    dest: /srv/collected
    files: [packages/libnccl2.deb]
"""

RETURN = "# nothing"
