"""Programs of this machine that the lab runs, and the rights it needs for them."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import click

from gpucheck.model.finding.verdict import EXIT_STATUS, EXIT_USAGE, Verdict
from gpucheck.printable import indented


class LabError(click.ClickException):
    """The lab or an image could not be made: something that it needs is missing here, or failed. Exit status 3."""

    exit_code = EXIT_STATUS[Verdict.UNKNOWN]
    several_lines = True  # the end of a program's output, and what to do, on lines of their own


class LabUsageError(LabError):
    """What was asked for cannot be: a taken subnet, a bad name. Exit status 64."""

    exit_code = EXIT_USAGE


TAIL_LINES = 12


def say(line: str) -> None:
    """Print to stderr; stdout stays free for results."""
    click.echo(indented(line), err=True)


def run(command: Sequence[str | Path], *, what: str, hint: str = "") -> str:
    """Run a program and return its stdout.

    what: the step, for the message. hint: what to do when it fails.
    Raises LabError with the end of the program's output.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise LabError(f"{what} failed: cannot run {words[0]}: {error.strerror}") from error
    if done.returncode:
        raise LabError(
            failed(what, f"{' '.join(words[:6])} exited {done.returncode}", done.stderr or done.stdout, hint)
        )
    return done.stdout


def failed(what: str, why: str, output: str, hint: str = "") -> str:
    """A message with the end of a program's output. A full disk is named, because its symptoms rarely are."""
    lines = [line for line in output.strip().splitlines() if line.strip()][-TAIL_LINES:]
    if "no space left on device" in output.lower():
        hint = "the disk is full: free some space (docker system df shows what images take), then run this again"
    parts = [f"{what} failed: {why}", *(f"  | {line}" for line in lines)]
    return "\n".join([*parts, f"do: {hint}"] if hint else parts)


def root_prefix(purpose: str) -> list[str]:
    """The words to put before a command that needs root: nothing for root, sudo for who may use it.

    Raises LabError when there is neither.
    """
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo and subprocess.run([sudo, "-n", "true"], check=False, capture_output=True).returncode == 0:
        return [sudo, "-n"]
    raise LabError(
        f"{purpose} needs root, and this user is not root and has no password-less sudo\n"
        f"do: run this as root, or run `sudo -v` first, or have an administrator do it once"
    )


def install(packages: Sequence[str], why: str) -> None:
    """Install packages of this machine's own distribution with apt. Prints one line about it."""
    apt = shutil.which("apt-get")
    if apt is None:
        raise LabError(
            f"{' '.join(packages)} is missing ({why}) and this machine has no apt-get to install it with\n"
            f"do: install {' '.join(packages)} with this machine's package manager, then run this again"
        )
    sudo = root_prefix(f"installing {' '.join(packages)}")
    say(f"installing {' '.join(packages)}: {why}")
    quiet = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", apt, "-qq", "--yes"]
    hint = "check this machine's apt sources and network (apt-get update), then run this again"
    run([*quiet, "update"], what="refreshing the package lists", hint=hint)
    run([*quiet, "install", "--no-install-recommends", *packages], what=f"installing {' '.join(packages)}", hint=hint)
