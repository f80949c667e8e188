"""The key that DKMS signs modules with: whether it is on the host, and whether the firmware's list has it.

Runs on the managed host: standard library only, Python 3.6 or newer. Nothing here changes anything.
"""

import os

from ansible_collections.gpucheck.provision.plugins.module_utils.readers.files import Unreadable, run


def state(plan, secure_boot):
    """{certificate, missing, enrolled, why} of the planned key, None without one.

    missing: its files that are not there. enrolled: None where it does not matter or is not known; why: the reason.
    """
    planned = plan.get("mok")
    if not planned:
        return None
    missing = [path for path in (planned["key"], planned["certificate"]) if not os.path.isfile(path)]
    found = {"certificate": planned["certificate"], "missing": missing, "enrolled": None, "why": ""}
    if secure_boot is not False and not missing:
        found["enrolled"], found["why"] = enrolled(planned["certificate"])
    return found


def enrolled(certificate):
    """Return (enrolled, why): True, False, or None if mokutil does not report it; why it is not True."""
    try:
        done = run(["mokutil", "--test-key", certificate])
    except Unreadable as error:
        return None, str(error)
    # It exits with 1 for a key that is enrolled.
    if done.returncode not in (0, 1):
        return None, "mokutil: exit {}: {}".format(done.returncode, done.stderr)
    output = done.stdout.strip()
    if "already enrolled" in output:
        return True, ""
    if "enrollment request" in output:
        return False, "its enrollment waits for a confirmation on the console at the next boot"
    return (False if "not enrolled" in output else None), output or "mokutil prints nothing"
