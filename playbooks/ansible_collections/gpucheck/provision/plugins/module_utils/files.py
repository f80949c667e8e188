"""Small readings that all our modules share: a file, a program's answer.

Runs on the managed host: standard library only, Python 3.6 or newer. Nothing here changes anything.
"""

import os
import subprocess

COMMAND_SECONDS = 60


class Unreadable(Exception):
    """The host could not be read; the message says what and why."""


def command(argv, seconds=COMMAND_SECONDS, accept=(0,)):
    """stdout of a program that changes nothing of the host. Raises Unreadable when it is missing, hangs or fails."""
    environment = dict(os.environ, LC_ALL="C")
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreadable("{}: {}".format(argv[0], error))
    if done.returncode not in accept:
        raise Unreadable("{}: exit {}: {}".format(argv[0], done.returncode, done.stderr.decode("utf-8", "replace")))
    return done.stdout.decode("utf-8", "replace")


def text(path):
    """A small file without surrounding space, None where it does not exist or may not be read."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return None
