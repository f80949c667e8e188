#!/usr/bin/python
"""Install a repository's signing key, and only if it is the key that was planned."""

DOCUMENTATION = r"""
module: signing_key
short_description: Install a repository signing key that is pinned by its fingerprint
description:
  - Fetches an OpenPGP public key, compares its fingerprint with the pinned one, and writes it. A key with another
    fingerprint is refused and nothing is written.
  - A key file that already holds the pinned key is left alone without any network access. Without a pin an existing
    key file is kept.
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
    description: The pinned fingerprint in hex, with or without spaces; empty pins nothing.
    type: str
    default: ""
  armored:
    description: Write the key in ASCII armor, as rpm wants it, instead of binary as apt wants it.
    type: bool
    default: false
attributes:
  check_mode:
    description: Says whether the file would be written, fetches nothing.
    support: full
author: gpucheck
"""

EXAMPLES = r"""
- name: Install the key of a repository
  signing_key:
    url: https://mirror.example.org/key.pub
    dest: /usr/share/keyrings/example.gpg
    fingerprint: EB69 3B30 35CD 5710 E231 E123 A4B4 6996 3BF8 63CC
"""

RETURN = r"""
fingerprint:
  description: The fingerprint of the key in dest, empty in check mode before it exists.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.gpu_keys import armor, pinned  # noqa: E402
from ansible.module_utils.gpu_place import put  # noqa: E402
from ansible.module_utils.gpu_repository import key_fingerprint  # noqa: E402


def main():
    """Compare, fetch, compare, write."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "dest": {"type": "path", "required": True},
            "fingerprint": {"type": "str", "default": ""},
            "armored": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    url, dest = module.params["url"], module.params["dest"]
    wanted = module.params["fingerprint"].replace(" ", "").upper()
    present = key_fingerprint(dest)
    if present is not None and present == (wanted or present):
        module.exit_json(changed=False, fingerprint=present)
    if module.check_mode:
        module.exit_json(changed=True, fingerprint=present or "")
    key, seen = pinned(module, url, wanted)
    try:
        put(module, dest, armor(key) if module.params["armored"] else key)
    except OSError as error:
        module.fail_json(msg="{} cannot be written: {}".format(dest, error))
    module.exit_json(changed=True, fingerprint=seen)


if __name__ == "__main__":
    main()
