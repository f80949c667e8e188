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

import base64  # noqa: E402
import os  # noqa: E402
import tempfile  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.gpu_repository import key_fingerprint  # noqa: E402
from ansible.module_utils.openpgp import NotAKey, fingerprint, read_key  # noqa: E402
from ansible.module_utils.urls import fetch_url  # noqa: E402

LARGEST_KEY_BYTES = 1 << 20


def crc24(content):
    """The armor checksum of RFC 9580, 6.1: optional there, but the gpg that rpm_key runs wants it."""
    crc = 0xB704CE
    for byte in content:
        crc ^= byte << 16
        for _ in range(8):
            crc = (crc << 1) ^ (0x1864CFB if crc & 0x800000 else 0)
    return crc & 0xFFFFFF


def armor(key):
    """The key in ASCII armor."""
    body = base64.b64encode(key).decode("ascii")
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    checksum = "=" + base64.b64encode(crc24(key).to_bytes(3, "big")).decode("ascii")
    head, tail = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"
    return "\n".join([head, "", *lines, checksum, tail, ""]).encode("ascii")


def fetch(module, url):
    """The key's bytes, or the task fails with what to do."""
    answer, info = fetch_url(module, url, timeout=30)
    # A local file has no status: a bundle brings its key along.
    if answer is None or (info["status"] != 200 and not url.startswith("file:")):
        hint = "Check that the host reaches this address, or name a mirror under repositories in stack.yml."
        module.fail_json(msg="key {} cannot be fetched: {}. {}".format(url, info["msg"], hint))
    try:
        return read_key(answer.read(LARGEST_KEY_BYTES))
    except NotAKey as error:
        module.fail_json(msg="{} is not a signing key: {}".format(url, error))


def write(module, dest, content):
    """Put the file in place in one step, readable by all."""
    os.makedirs(os.path.dirname(dest), exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.chmod(temporary, 0o644)
    module.atomic_move(temporary, dest)


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
    key = fetch(module, url)
    try:
        seen = fingerprint(key)
    except NotAKey as error:
        module.fail_json(msg="{} is not a signing key: {}".format(url, error))
    if wanted and seen != wanted:
        module.fail_json(
            msg="{} has fingerprint {}, pinned is {}: refused, nothing was written. If the publisher changed its key, "
            "confirm the new fingerprint there and put it into stack.yml.".format(url, seen, wanted)
        )
    write(module, dest, armor(key) if module.params["armored"] else key)
    module.exit_json(changed=True, fingerprint=seen)


if __name__ == "__main__":
    main()
