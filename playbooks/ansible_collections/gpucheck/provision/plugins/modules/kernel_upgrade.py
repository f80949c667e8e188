#!/usr/bin/python
"""Upgrade a host's kernel, with its headers, from the host's own package sources."""

DOCUMENTATION = r"""
module: kernel_upgrade
short_description: Upgrade the kernel and its headers from the host's own package sources
description:
  - For a host whose sources no longer have the headers of its running kernel, so that DKMS cannot build for it.
  - Chooses the newest kernel that the sources offer together with its headers. On apt that is what the installed kernel
    metapackages (linux-image-generic) bring, on dnf the packages that the running kernel has.
  - Simulates the transaction first. One that would remove, downgrade or change foreign packages is rejected.
  - The new kernel belongs to the system, and deprovisioning keeps it. The caller reboots into it.
options:
  host: {type: str, required: true, description: "The host's name in the inventory, for messages."}
  plan: {type: dict, required: true, description: "The host's plan, schema gpucheck.plan/1."}
  state: {type: str, choices: [asked, prepared, present], default: present, description: "C(asked) returns which kernel
    it would be, from lists fetched into a temporary directory, and changes nothing. C(prepared) simulates and
    downloads, so that what fails early fails before the host is drained. C(present) installs."}
  allow_changes: {type: list, elements: str, default: [], description: "Names or patterns of foreign packages that the
    transaction may remove, downgrade, or change though held."}
  lock_timeout_s: {type: int, default: 600, description: Seconds to wait while another program holds the package
    manager's lock.}
notes:
  - Why this module exists. M(ansible.builtin.apt) and M(ansible.builtin.dnf) do not choose a kernel by its headers or
    reject a transaction beforehand.
author: gpucheck
"""

RETURN = r"""
release: {returned: success, type: str, description: "The kernel, empty if there is none to upgrade to."}
reason: {returned: success, type: str, description: "Why there is none, empty if there is one."}
packages: {returned: success, type: list, elements: str, description: What is requested from the package manager.}
headers: {returned: unless state is asked, type: list, elements: str, description: "The plan's header packages under
  that kernel, as the next run plans them."}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import apt, dnf, headers, kernel_upgrade, record
from ..module_utils.call import Refused, explained
from ..module_utils.host import read_facts
from ..module_utils.kernel_headers import header_names
from ..module_utils.place import as_bytes, write
from ..module_utils.readers.files import Unreadable

REFUSED = (
    "the kernel cannot be upgraded: {}. No kernel was installed. Upgrade it by hand and reboot, or set kernel: keep in "
    "stack.yml and boot a kernel whose headers are available."
)


def query(module, plan, known):
    """(release, packages, reason) by lists that are fetched now into a folder of their own."""
    try:
        if plan["package_manager"] == "dnf":
            return (*kernel_upgrade.target(module, plan, *known), "")
        with headers.fresh_lists() as options:
            return (*kernel_upgrade.target(module, plan, *known, options), "")
    except (Refused, Unreadable) as error:
        return "", [], str(error)


def go(module, plan, known):
    """(release, packages): download, with state present install. Raises Refused."""
    seconds, manager = module.params["lock_timeout_s"], plan["package_manager"]
    tool = {"apt": apt, "dnf": dnf}[manager]
    tool.read_lists(module, [], seconds)
    release, packages = kernel_upgrade.target(module, plan, *known)
    words = [*kernel_upgrade.lifting(plan, *known), "install", *packages]
    blocked = kernel_upgrade.held(plan, *known)
    rows = kernel_upgrade.moves(module, plan, words)
    kernel_upgrade.guard(rows, plan, blocked, module.params["allow_changes"])
    if module.params["state"] == "prepared":
        words = [{"apt": "--download-only", "dnf": "--downloadonly"}[manager], *words]
    (apt.apt_get if manager == "apt" else dnf.dnf)(module, words, seconds)
    return release, packages


def disown(module):
    """Count the kernel packages that are there now as the system's: deprovisioning and cleanup leave them."""
    noted = record.read(record.TRANSACTION)
    if noted:
        _, extras = read_facts(module.params["host"])
        new = [name for name in extras["packages"] if kernel_upgrade.of_kernel(name)]
        noted["packages"] = sorted(set(noted["packages"]) | set(new))
        write(module, record.TRANSACTION, as_bytes(noted))


def main():
    """Query or change."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "plan": {"type": "dict", "required": True},
            "state": {"type": "str", "choices": ["asked", "prepared", "present"], "default": "present"},
            "allow_changes": {"type": "list", "elements": "str", "default": []},
            "lock_timeout_s": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    plan, state = module.params["plan"], module.params["state"]
    with explained(module, module.params["host"], REFUSED):
        known = read_facts(module.params["host"])
        if state == "asked" or module.check_mode:
            release, packages, reason = query(module, plan, known)
            module.exit_json(changed=False, release=release, packages=packages, reason=reason)
        release, packages = go(module, plan, known)
        if state == "present":
            disown(module)
        names = header_names(plan, known[0]["kernel"], release)
    module.exit_json(changed=state == "present", release=release, packages=packages, reason="", headers=names)


if __name__ == "__main__":
    main()
