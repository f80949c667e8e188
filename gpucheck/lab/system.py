"""Programs of this machine that the lab runs, and the rights it needs for them."""

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucheck.model.finding import EXIT_STATUS, EXIT_USAGE, Verdict
from gpucheck.printable import indented
from gpucheck.processes.signals import spare


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
            words, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
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
    # On a new machine unattended-upgrades has the lock for minutes, and by itself apt-get does not wait.
    quiet = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", apt, "-qq", "--yes", "-o", "DPkg::Lock::Timeout=600"]
    hint = "check this machine's apt sources and network (apt-get update), then run this again"
    run([*quiet, "update"], what="refreshing the package lists", hint=hint)
    run([*quiet, "install", "--no-install-recommends", *packages], what=f"installing {' '.join(packages)}", hint=hint)


if TYPE_CHECKING:
    from docker import DockerClient

SOCKET = Path("/var/run/docker.sock")
LOG = Path("/var/log/gpucheck-dockerd.log")
START_SECONDS = 60.0
CALL_SECONDS = 600


def engine() -> "DockerClient":
    """A client of a Docker engine that answers. Silent when one does already.

    Raises LabError if there is none and none can be installed.
    """
    client = reachable()
    if client is not None:
        return client
    if os.environ.get("DOCKER_HOST"):
        raise LabError(
            f"the Docker engine at {os.environ['DOCKER_HOST']} does not answer (DOCKER_HOST names it)\n"
            "do: start that engine, or unset DOCKER_HOST to use one of this machine"
        )
    if shutil.which("dockerd") is None:
        install(["docker.io"], "the lab hosts are containers")
        client = reachable()
        if client is not None:
            return client
    if Path("/run/systemd/system").is_dir():
        return _start_service()
    return _start_daemon()


def is_cgroup_v2(client: "DockerClient") -> bool:
    return str(client.info().get("CgroupVersion", "1")) == "2"


def reachable() -> "DockerClient | None":
    """A client that got an answer, None where nothing listens. Raises LabError where we are not let in."""
    try:
        import docker
        import docker.errors
    except ModuleNotFoundError as error:
        raise LabError(
            f"the lab needs the Python package {error.name}, which is not installed here\n"
            "do: python -m pip install docker (make provision does it by itself)"
        ) from error
    try:
        client = docker.from_env(timeout=CALL_SECONDS)
        client.ping()
    except docker.errors.DockerException as error:
        if "Permission denied" in str(error):
            raise LabError(
                f"the Docker engine at {SOCKET} does not let this user in: permission denied\n"
                "do: run this as root, or add the user to the group docker and log in again"
            ) from error
        return None
    return client


def _wait(deadline: float) -> "DockerClient | None":
    while time.monotonic() < deadline:
        client = reachable() if SOCKET.exists() else None
        if client is not None:
            return client
        time.sleep(0.2)
    return None


def _start_service() -> "DockerClient":
    sudo = root_prefix("starting the Docker engine")
    say("starting the Docker engine (systemctl start docker)")
    hint = "read the reason with journalctl -u docker, then run this again"
    run([*sudo, "systemctl", "start", "docker"], what="starting the Docker engine", hint=hint)
    client = _wait(time.monotonic() + START_SECONDS)
    if client is None:
        raise LabError(f"docker.service runs but nothing answers at {SOCKET} after {START_SECONDS:.0f} s\ndo: {hint}")
    return client


def _start_daemon() -> "DockerClient":
    """No service manager runs here (a container, a minimal machine): start dockerd ourselves, detached."""
    sudo = root_prefix("starting the Docker engine")
    say(f"starting the Docker engine: no service manager runs here (log: {LOG})")
    shell = f"exec dockerd >>{LOG} 2>&1"
    # A new session, so that neither Ctrl-C nor the end of this terminal takes the engine down.
    words, none = [*sudo, "sh", "-c", shell], subprocess.DEVNULL
    daemon = subprocess.Popen(words, stdin=none, stdout=none, stderr=none, start_new_session=True, cwd="/")
    spare(daemon.pid)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and daemon.poll() is None:
        client = _wait(min(deadline, time.monotonic() + 1.0))
        if client is not None:
            return client
    status = daemon.poll()
    why = f"dockerd exited {status}" if status is not None else f"no answer within {START_SECONDS:.0f} s"
    try:
        log = LOG.read_text(errors="replace")[-20000:]
    except OSError as error:
        log = f"{LOG}: {error.strerror}"
    raise LabError(failed("starting the Docker engine", why, reasons(log), f"{LOG} has the rest"))


def reasons(log: str) -> str:
    """The lines of a dockerd log with the reason why it stopped; without one, the last lines."""
    lines = log.splitlines()
    telling = [line for line in lines if "level=fatal" in line or "failed to start daemon" in line]
    return "\n".join(telling[-3:] or lines[-6:])
