#!/usr/bin/python
"""Documentation of controller_files; the action plugin of the same name does the work on the controller."""

DOCUMENTATION = r"""
module: controller_files
short_description: Write many small files on the controller in one task
description:
  - Writes each file whole or not at all, mode 0644, and leaves alone what has that content already.
  - Bookkeeping beside the hosts, so it never reports a change, and runs in check mode too.
options:
  folder:
    description: A folder on the controller, made where it is not there.
    type: path
    required: true
  files:
    description: Content by file name.
    type: dict
    required: true
attributes:
  check_mode:
    description: Writes in check mode too.
    support: none
author: gpucheck
"""

EXAMPLES = r"""
- name: Write the facts
  controller_files:
    folder: build/facts
    files: {node01.json: "{}"}
"""

RETURN = "# nothing"
