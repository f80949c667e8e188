#!/usr/bin/python
"""Install a repository's signing key, and only if it is the key that was planned."""

DOCUMENTATION = r"""
module: signing_key
short_description: Install a repository signing key that is pinned by its fingerprint
description:
  - Fetches an OpenPGP public key file, compares the fingerprint of every key in it with the pinned ones, and writes it.
    A file with any other key, or with anything but public keys, is rejected and nothing is written.
  - A key file that already holds pinned keys and no other is kept without any network access.
  - Needs no gpg on the host.
options:
  url:
    description: Where the key is fetched from.
    type: str
    required: true
  dest:
    description: The key file.
    type: path
    required: true
  fingerprint:
    description: The pinned fingerprints in hex, with or without spaces, separated by commas.
    type: str
    required: true
  armored:
    description: Write the key in ASCII armor, as rpm requires it, instead of binary as apt requires it.
    type: bool
    default: false
attributes:
  check_mode:
    description: Reports whether the file would be written; fetches nothing.
    support: full
notes:
  - Why this module exists. M(ansible.builtin.get_url) knows a checksum of the file, not the fingerprints of the
    keys in it; M(ansible.builtin.rpm_key) needs gpg.
author: gpucheck
"""

EXAMPLES = r"""
- name: Install the key of a repository
  gpucheck.provision.signing_key:
    url: https://mirror.example.org/key.pub
    dest: /usr/share/keyrings/example.gpg
    fingerprint: EB69 3B30 35CD 5710 E231 E123 A4B4 6996 3BF8 63CC
"""

RETURN = r"""
fingerprints:
  description: The fingerprints of all keys in dest, empty in check mode before it exists.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpucheck.provision.plugins.module_utils.openpgp import armor
from ansible_collections.gpucheck.provision.plugins.module_utils.package_repository import key_fingerprints, pins
from ansible_collections.gpucheck.provision.plugins.module_utils.place import put
from ansible_collections.gpucheck.provision.plugins.module_utils.signing_keys import pinned


def main():
    """Compare, fetch, compare, write."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "dest": {"type": "path", "required": True},
            "fingerprint": {"type": "str", "required": True},
            "armored": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    url, dest = module.params["url"], module.params["dest"]
    allowed, present = pins(module.params["fingerprint"]), key_fingerprints(dest)
    if present and set(present) <= set(allowed):
        module.exit_json(changed=False, fingerprints=present)
    if module.check_mode:
        module.exit_json(changed=True, fingerprints=present)
    key, installed = pinned(module, url, allowed)
    try:
        put(module, dest, armor(key) if module.params["armored"] else key)
    except OSError as error:
        module.fail_json(msg="{} cannot be written: {}".format(dest, error))
    module.exit_json(changed=True, fingerprints=installed)


if __name__ == "__main__":
    main()
