#!/usr/bin/python
"""Documentation of python_wheel; the action plugin of the same name does the work on the controller."""

DOCUMENTATION = r"""
module: python_wheel
short_description: Build a Python project's wheel once for each state of its sources
description:
  - Runs on the controller, whatever host the task is for, and builds with the interpreter that Ansible runs on.
  - Nothing is fetched, setuptools has to be installed there. The project's requirements.lock is copied next to it.
  - The wheel is kept in a folder named by the digest of the sources; the same sources are never built twice, and then
    need no network.
options:
  source:
    description: The project's folder, with its pyproject.toml.
    type: path
    required: true
  package:
    description: The package's folder below source.
    type: str
    required: true
  dest:
    description: Folder for the wheels.
    type: path
    required: true
attributes:
  check_mode:
    description: The wheel is built in check mode too, it changes no host.
    support: full
notes:
  - Why this module exists. M(ansible.builtin.command) with C(creates) rebuilds for no change of the sources, or
    never.
author: gpucheck
"""

EXAMPLES = r"""
- name: Build the wheel
  gpucheck.provision.python_wheel:
    source: "{{ playbook_dir }}/.."
    package: gpucheck
    dest: "{{ playbook_dir }}/../build/wheels"
"""

RETURN = r"""
path:
  description: The wheel.
  returned: success
  type: str
lock:
  description: The project's requirements.lock, next to the wheel.
  returned: success
  type: str
digest:
  description: SHA-256 of the sources it was built from.
  returned: success
  type: str
sha256:
  description: SHA-256 of the wheel itself.
  returned: success
  type: str
python_minimum:
  description: The oldest Python the project supports, from its own metadata; empty where it names none.
  returned: success
  type: str
"""
