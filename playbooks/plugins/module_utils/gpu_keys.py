"""Signing keys of repositories: fetched, held against the pinned fingerprint, and in the form that each package manager
wants. Runs on the managed host: standard library only, Python 3.6 or newer.
"""

import base64

from ansible.module_utils.gpu_credentials import masked
from ansible.module_utils.openpgp import NotAKey, fingerprint, read_key
from ansible.module_utils.urls import fetch_url

LARGEST_KEY_BYTES = 1 << 20


def crc24(content):
    """The armor checksum of RFC 9580, 6.1: optional there, but the gpg that rpm runs wants it."""
    crc = 0xB704CE
    for byte in content:
        crc ^= byte << 16
        for _ in range(8):
            crc = (crc << 1) ^ (0x1864CFB if crc & 0x800000 else 0)
    return crc & 0xFFFFFF


def armor(key):
    """The key in ASCII armor, as rpm wants it; apt wants it binary."""
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
        module.fail_json(msg="key {} cannot be fetched: {}. {}".format(masked(url), masked(info["msg"]), hint))
    try:
        return read_key(answer.read(LARGEST_KEY_BYTES))
    except NotAKey as error:
        module.fail_json(msg="{} is not a signing key: {}".format(masked(url), error))


def pinned(module, url, pin):
    """(key, its fingerprint) from this address; the task fails where it is another key than the pinned one.

    pin: in capitals and without spaces; "" takes any key.
    """
    key = fetch(module, url)
    try:
        seen = fingerprint(key)
    except NotAKey as error:
        module.fail_json(msg="{} is not a signing key: {}".format(masked(url), error))
    if pin and seen != pin:
        module.fail_json(
            msg="{} has fingerprint {}, pinned is {}: refused, nothing was written. If the publisher changed its key, "
            "confirm the new fingerprint there and put it into stack.yml.".format(masked(url), seen, pin)
        )
    return key, seen
