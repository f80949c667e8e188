#!/usr/bin/python
"""Query the package sources of a host for the planned packages. Changes nothing."""

DOCUMENTATION = r"""
module: packages_offered
short_description: Query whether the host's own sources offer the planned packages
description:
  - For a plan that adds no package sources (repositories, managed), so that the host's own must hold every package.
  - Queries each package that is not installed in its planned version, and the planned module stream (dnf).
  - On apt, if the host's lists lack a package, current lists are fetched into a temporary directory.
options:
  plan:
    description: The host's plan, schema gpucheck.plan/1.
    type: dict
    required: true
attributes:
  check_mode:
    description: Only queries, so check mode makes no difference.
    support: full
notes:
  - Why this module exists. M(ansible.builtin.package_facts) lists installed packages only.
author: gpucheck
"""

EXAMPLES = r"""
- name: Query the planned packages
  gpucheck.provision.packages_offered:
    plan: "{{ host_plan }}"
  become: true
"""

RETURN = r"""
missing:
  description: What no source offers, each with the versions that one does.
  returned: success
  type: list
  elements: str
unknown:
  description: Why it could not be found out, empty where it could.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpucheck.provision.plugins.module_utils import offers
from ansible_collections.gpucheck.provision.plugins.module_utils.call import explained
from ansible_collections.gpucheck.provision.plugins.module_utils.host import read_facts


def main():
    """Query, and return the result."""
    module = AnsibleModule(argument_spec={"plan": {"type": "dict", "required": True}}, supports_check_mode=True)
    with explained(module, "this host"):
        _, extras = read_facts("host")
        missing, unknown = offers.query_missing(module.params["plan"], extras["packages"])
        module.exit_json(changed=False, missing=missing, unknown=unknown)


if __name__ == "__main__":
    main()
