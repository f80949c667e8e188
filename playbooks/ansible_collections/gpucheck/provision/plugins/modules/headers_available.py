#!/usr/bin/python
"""Query the package sources of a host for kernel headers. Changes nothing."""

DOCUMENTATION = r"""
module: headers_available
short_description: Query whether kernel header packages are available
description:
  - Reads the package lists of the host, and if those lack a package, current lists in a temporary directory. The host's
    own lists are not changed.
  - If a source does not respond, the result is unknown, which is not "missing".
options:
  names:
    description: The packages, without versions.
    type: list
    elements: str
    required: true
  package_manager:
    description: The host's package manager.
    type: str
    choices: [apt, dnf]
    required: true
attributes:
  check_mode:
    description: Only queries, so check mode makes no difference.
    support: full
notes:
  - Why this module exists. No builtin module distinguishes a missing package from a source that does not respond.
author: gpucheck
"""

EXAMPLES = r"""
- name: Query the headers of the running kernel
  gpucheck.provision.headers_available:
    names: [linux-headers-generic]
    package_manager: apt
  become: true
"""

RETURN = r"""
missing:
  description: Packages that no source offers.
  returned: success
  type: list
  elements: str
unknown:
  description: Why it could not be found out, empty where it could.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpucheck.provision.plugins.module_utils.headers import ask


def main():
    """Query, and return the result."""
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "required": True},
            "package_manager": {"type": "str", "choices": ["apt", "dnf"], "required": True},
        },
        supports_check_mode=True,
    )
    missing, unknown = ask(module.params["names"], module.params["package_manager"])
    module.exit_json(changed=False, missing=missing, unknown=unknown)


if __name__ == "__main__":
    main()
