"""One run at a time on a host: a lease on the host that names its holder.

Ansible's tasks are processes of their own, so no open file can be the lock. The lease is a file of its holder, which
its steps renew; reading, checking and replacing it is one step under a lock of the kernel. It outlives a reboot, as the
run that reboots a host goes on afterwards: the boot counts as a renewal. Time is the host's uptime, which no clock
changes.
"""

import contextlib
import fcntl
import json
import os

from .place import fresh, stored
from .readers.files import text

FOLDER = "/var/lib/gpucheck"
BOOT_ID, UPTIME = "/proc/sys/kernel/random/boot_id", "/proc/uptime"
VARIABLE = "GPUCHECK_RUN"  # for every step of a run: its id and the folder of the lease
FRESH_S = 30  # a lease that was renewed so lately is not written again


def take(run, lease_s, dead="", folder=FOLDER):
    """Take the lease; None, or the run that holds it. run: has an id. dead: the id of a run that is known dead."""
    with _alone(folder) as path:
        holder = _read(path)
        if holder and holder["run"]["id"] not in (run["id"], dead) and _valid(holder):
            return holder["run"]
        _write(path, run, lease_s)
        return None


def renew(ahead_s=0):
    """Renew the lease of the run that this step belongs to; the holder where another run has it now, else None.

    ahead_s: how long it lasts at least, until the next step.
    """
    mine, _, folder = os.environ.get(VARIABLE, "").partition(" ")
    if not mine or not os.path.exists(_path(folder)):
        return None
    with _alone(folder) as path:
        holder = _read(path)
        if holder and holder["run"]["id"] != mine:
            return holder["run"]
        lasts_s = max(holder["lease_s"], ahead_s) if holder else 0
        if holder and (holder["boot"] != text(BOOT_ID) or holder["until"] - _uptime() < lasts_s - FRESH_S):
            _write(path, holder["run"], holder["lease_s"], lasts_s)
        return None


def release(run_id, folder=FOLDER):
    """Release the lease; return True if this run had it."""
    if not os.path.exists(_path(folder)):
        return False
    with _alone(folder) as path:
        holder = _read(path)
        if not holder or holder["run"]["id"] != run_id:
            return False
        os.unlink(path)
        return True


def named(run):
    return "{playbook} by {user} on {controller} (process {pid}), started {started}".format(**run)


def _path(folder):
    return os.path.join(folder, "run.lock")


@contextlib.contextmanager
def _alone(folder):
    """The path of the lease, while no other process reads or writes it."""
    os.makedirs(folder, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(os.path.join(folder, ".run.guard"), flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield _path(folder)
    finally:
        os.close(descriptor)


def _valid(holder):
    if holder["boot"] != text(BOOT_ID):
        return _uptime() < holder["lease_s"]
    return _uptime() < holder["until"]


def _read(path):
    """Return the lease, None if there is none. It is replaced atomically, so an unreadable file is not a lease."""
    try:
        found = stored(path)
        return found if found["run"]["id"] and found["boot"] and found["until"] + found["lease_s"] else None
    except (KeyError, TypeError):
        return None


def _write(path, run, lease_s, lasts_s=0):
    lease = {"run": run, "boot": text(BOOT_ID), "until": _uptime() + (lasts_s or lease_s), "lease_s": lease_s}
    partial = path + ".partial"
    fresh(partial, json.dumps(lease).encode("utf-8"), 0o644)
    os.rename(partial, path)


def _uptime():
    return float((text(UPTIME) or "0").split()[0])
