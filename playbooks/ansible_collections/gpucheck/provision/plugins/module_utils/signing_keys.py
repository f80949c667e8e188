"""Signing keys of repositories: fetched and compared with the pinned fingerprints, all of them."""

import re
import signal

from ansible.module_utils.urls import fetch_url

from .credentials import masked
from .openpgp import LARGEST_KEY_BYTES, NotAKey, armor, digest, fingerprints, read_key

# For the complete request. A timeout of fetch_url counts from byte to byte.
FETCH_SECONDS = 60
PIN = re.compile(r"([0-9A-F]{40}|[0-9A-F]{64}|SHA256:[0-9A-F]{64})\Z")


class Late(OSError):
    """A request took too long."""


def late(_number, _frame):
    """Raise in whatever the request waits for: the name, the connection, TLS, headers or content."""
    raise Late(f"not complete after {FETCH_SECONDS} s")


def fetch(module, url):
    content, info = b"", {"status": None, "msg": ""}
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(FETCH_SECONDS)
    try:
        response, info = fetch_url(module, url, timeout=30)
        content = response.read(LARGEST_KEY_BYTES + 1) if response is not None else b""
    except OSError as error:
        response, info["msg"] = None, str(error)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    # A local file has no status: a bundle brings its key along.
    if response is None or (info["status"] != 200 and not url.startswith("file:")):
        hint = "Check that the host reaches this address, or name a mirror under repositories in stack.yml."
        module.fail_json(msg="key {} cannot be fetched: {}. {}".format(masked(url), masked(info["msg"]), hint))
    try:
        return content, read_key(content)
    except NotAKey as error:
        module.fail_json(msg=f"{masked(url)} is not a signing key: {error}. Nothing was written.")


def pinned(module, url, allowed):
    """(key, the key in armor) from this address; the task fails unless every key in the file is a pinned one.

    allowed: the pinned fingerprints, in capitals and without spaces, or SHA256: and the digest of the key file, whose
    armor is then as it was fetched: the digest can be compared again.
    """
    short = [one for one in allowed if not PIN.match(one)]
    if short:
        # Eight hex digits can be forged in minutes.
        hint = "State all 40 or 64 hex digits in key_fingerprint, several fingerprints separated by commas."
        module.fail_json(msg="{}: {} is not a fingerprint. {}".format(masked(url), ", ".join(short), hint))
    if not allowed:
        module.fail_json(
            msg=f"{masked(url)}: no fingerprint is pinned, so any key would be accepted: rejected, nothing was "
            "written. Compare the key with what its publisher states and set key_fingerprint in stack.yml."
        )
    content, key = fetch(module, url)
    present = fingerprints(key)
    if digest(content) in allowed:
        return key, content
    foreign = [one for one in present if one not in allowed]
    if foreign and all(one.startswith("SHA256:") for one in allowed):
        module.fail_json(
            msg="{} has the digest {}, pinned is {}: rejected, nothing was written. If the publisher changed the key, "
            "confirm its fingerprint {} with the publisher and set key_fingerprint in stack.yml.".format(
                masked(url), digest(content).lower(), ", ".join(allowed).lower(), ", ".join(present)
            )
        )
    if foreign:
        module.fail_json(
            msg="{} has fingerprint {}, pinned is {}: rejected, nothing was written. Each key in the file would be "
            "trusted. If the publisher changed or added a key, confirm the fingerprint with the publisher and add it "
            "to stack.yml; separate several with commas.".format(masked(url), ", ".join(foreign), ", ".join(allowed))
        )
    return key, armor(key)
