#!/usr/bin/python
"""Documentation of known_variables; the action plugin of the same name does the work on the controller."""

DOCUMENTATION = r"""
module: known_variables
short_description: Reject mistyped variables of gpucheck's roles
description:
  - Fails for every variable of a host of groups gpu and collectors that has the prefix of a role of gpucheck, or
    resembles one of their options, but is not one of them. A mistyped name would leave the default active.
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
- name: Fail if a variable name is unknown
  gpucheck.provision.known_variables:
    roles: "{{ playbook_dir }}/roles"
    site: "{{ playbook_dir }}/vars/site_variables.yml"
"""

RETURN = "# nothing"
