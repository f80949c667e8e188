"""Calls that change a host, run as from a shell; failures are reported with the program's own error message."""

import re
import time
from contextlib import contextmanager

from . import lock
from .credentials import masked
from .readers.files import Unreadable
from .safety import package_locks

# No terminal is attached, and the output is parsed. needrestart restarts services by itself when apt runs
# without a terminal (Ubuntu 24.04), also under running jobs: SUSPEND skips its hook, and MODE=l only lists, for
# versions that do not know SUSPEND.
ENVIRONMENT = {
    "LC_ALL": "C",
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBIAN_PRIORITY": "critical",
    "NEEDRESTART_SUSPEND": "1",
    "NEEDRESTART_MODE": "l",
}
POLL_S = 1
# How timeout ends where it stopped a program, with SIGTERM or SIGKILL.
STOPPED = (124, 137)
MOST_LINES = 8


class Refused(Exception):
    """A program rejected a request or failed; the message has its output."""


@contextmanager
def explained(module, host, refused="{}."):
    """Fail the task with what went wrong on a host whose plan is carried out.

    ``refused``: the sentences around the error message of a program that failed.
    """
    try:
        yield
    except Unreadable as error:
        module.fail_json(msg=f"{host}: this host cannot be read: {error}")
    except Refused as error:
        module.fail_json(msg="{}: {}".format(host, refused.format(str(error).rstrip("."))))
    except OSError as error:
        module.fail_json(msg=f"{host}: {error}. Free space there or mount it writable, then run again.")
    except (KeyError, TypeError, ValueError) as error:
        module.fail_json(msg=f"{host}: its plan is not a gpucheck.plan/1 document: {error!r}")


def call(module, argv, accept=(0,), shown=None, most_s=None):
    """Return stdout of a program. Raises Refused for an exit status that is not accepted, or a missing program.

    shown: the name of the call in messages, by default its first three arguments. most_s: after so many seconds it is
    stopped, with the programs that it has started.
    """
    shown = shown or " ".join(argv[:3])
    bounded = ["timeout", "--kill-after=60", str(most_s), *argv] if most_s else argv
    status, out, err = attempt(module, bounded)
    if most_s and status in STOPPED:
        raise Refused(f"{shown}: stopped, because it did not end within {most_s} s: {last_words(out, err)}")
    if status not in accept:
        raise Refused(f"{shown}: exit {status}: {last_words(dpkg_words(out, err), err, out)}")
    return out


def attempt(module, argv):
    """(exit status, stdout, stderr) of a program, whatever the status. Raises Refused if the program is missing."""
    other = lock.renew()
    if other:
        raise Refused(f"Another run is changing this host: {lock.named(other)}")
    try:
        return module.run_command(argv, environ_update=ENVIRONMENT, handle_exceptions=False)
    except OSError as error:
        raise Refused(f"{argv[0]}: {error}")


def dpkg_words(output, errors):
    """Last lines of the script of the first package that dpkg could not process, and dpkg's error; "" without one.

    Without a terminal, apt has the first on stdout and the second on stderr.
    """
    failed = re.search(r"^dpkg: error processing package (\S+) .*(\n.*)?", errors, re.MULTILINE)
    if failed is None:
        return ""
    said, inside = [], False
    for line in output.splitlines():
        if line.startswith(("Setting up ", "Processing triggers ", "Unpacking ", "Preparing to unpack ")):
            inside = line.startswith(f"Setting up {failed.group(1)} ")
        elif inside:
            said.append(line)
    return "\n".join([*said[-4:], failed.group(0)])


def last_words(*outputs):
    """Return the last lines of the first output that is not empty, joined in one line."""
    for words in outputs:
        lines = [line.strip() for line in words.splitlines() if line.strip()]
        if lines:
            return masked(" ".join(lines[-MOST_LINES:]))
    return "no error message"


def wait_for_locks(family, seconds, sleep=time.sleep, clock=time.monotonic):
    """Wait until no program holds the package manager's locks. Raises Refused after a timeout, with the holder.

    family: dpkg or rpm.
    """
    end = clock() + seconds
    while True:
        held = package_locks(family)
        if not held:
            return
        if clock() >= end:
            raise Refused("After {} s of waiting {}. Wait until it ends, or stop it".format(seconds, "; ".join(held)))
        sleep(POLL_S)
