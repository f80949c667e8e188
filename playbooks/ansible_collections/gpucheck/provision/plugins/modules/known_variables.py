#!/usr/bin/python
"""Documentation of known_variables; the action plugin of the same name does the work on the controller."""

DOCUMENTATION = r"""
module: known_variables
short_description: Refuse variables that look like ours and are not
description:
  - Fails for every variable of a host of group gpu that bears the prefix of one of our roles, or is nearly one of their
    options, and is none of them. A mistyped name would silently leave its default in force.
options:
  roles:
    description: The folder of the roles.
    type: path
    required: true
  site:
    description: A YAML file whose keys are the variables that belong to no role.
    type: path
    required: true
attributes:
  check_mode:
    description: Looks only.
    support: full
notes:
  - Why this module exists. An argument specification rejects a wrong value, not a misspelled variable of the
    inventory.
author: gpucheck
"""

EXAMPLES = r"""
- name: Refuse a mistyped variable
  gpucheck.provision.known_variables:
    roles: "{{ playbook_dir }}/roles"
    site: "{{ playbook_dir }}/vars/site_variables.yml"
"""

RETURN = "# nothing"
