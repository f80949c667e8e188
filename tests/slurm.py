"""A real Slurm in a directory of this machine: a controller and one slurmd a node.

Its programs come from Debian's packages, which are unpacked and not installed, as a service of theirs would start.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.shared import END_S

PACKAGES = (
    "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "libmunge2", "libhwloc15", "libjson-c5",
)  # fmt: skip
# Slurm reads the role of a program from the name it is started by, and Debian's files have other names.
CONF = """ClusterName=gpucheck
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
PluginDir={libraries}/slurm-wlm
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
KillWait=5
{lines}
PartitionName=p Nodes=ALL Default=YES MaxTime=30 State=UP
"""
HOST = socket.gethostname().partition(".")[0]


def unpack(folder: Path) -> None:
    """Put Slurm's programs into this directory. Raises CalledProcessError where the packages cannot be had."""
    subprocess.run(["apt-get", "-qq", "download", *PACKAGES], cwd=folder, check=True, capture_output=True)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(folder)], check=True)
        package.unlink()


def find(name: str, root: Path) -> str | None:
    """Return the path of a program of Slurm, of packages that are unpacked below root."""
    path = f"{root}/usr/bin:{root}/usr/sbin"
    return shutil.which(f"{name}-wlm", path=path) or shutil.which(name, path=path)


class Slurm:
    """nodes: their names. environment: of what a user types."""

    def __init__(self, folder: Path, root: Path, nodes: Sequence[str]) -> None:
        self.folder, self.nodes, self._root = folder, nodes, root
        self.libraries = root / "usr/lib/x86_64-linux-gnu"
        self.environment = {
            "PATH": f"{root}/usr/bin:{root}/usr/sbin:{os.environ['PATH']}",
            "HOME": str(folder),
            "LD_LIBRARY_PATH": f"{self.libraries}/slurm-wlm:{self.libraries}",
            "SLURM_CONF": str(folder / "slurm.conf"),
        }
        self._daemons: list[subprocess.Popen[bytes]] = []

    def configure(self, address: str, *lines: str) -> None:
        """Write slurm.conf with more lines. address: of the controller."""
        (self.folder / "state").mkdir()
        values = {"folder": self.folder, "libraries": self.libraries, "host": HOST, "address": address}
        (self.folder / "slurm.conf").write_text(CONF.format(**values, port=free_ports(1)[0], lines="\n".join(lines)))

    def start(self, before: Callable[[str], Sequence[str]] = lambda _: ()) -> None:
        """Start all and wait for the nodes. before: words that run the slurmd of a node. Raises AssertionError."""
        self.open("slurmctld", "-D")
        step = self.folder / "slurmstepd"
        step.symlink_to(self._path("slurmstepd"))
        for name in self.nodes:
            words = before(name)
            self.open(*words, self._path("slurmd") if words else "slurmd", "-D", "-N", name, "-d", str(step))
        self.until(self.is_idle)

    def is_idle(self) -> bool:
        """Return whether all nodes are."""
        return self.ask("sinfo", "-h", "-N", "-p", "p", "-o", "%T").split() == ["idle"] * len(self.nodes)

    def open(self, *words: str) -> None:
        """Start a daemon."""
        with (self.folder / f"{len(self._daemons)}.out").open("wb") as out:
            path = self._path(words[0])
            self._daemons.append(
                subprocess.Popen(
                    words, executable=path, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
                )
            )

    def _path(self, name: str) -> str:
        found = find(name, self._root) or shutil.which(name)
        assert found, name
        return found

    def stop(self) -> None:
        """End all jobs and daemons."""
        self.ask("scancel", "--me")
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(20)
            daemon.kill()
            daemon.wait()

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of Slurm."""
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False, timeout=END_S)

    def ask(self, *words: str) -> str:
        """Return what a command of Slurm prints."""
        return self.run(*words).stdout

    def until(self, condition: Callable[[], bool], seconds: float = 300) -> None:
        """Wait. Raises AssertionError with the state of the nodes."""
        end = time.monotonic() + seconds
        while not condition():
            logs = "".join(path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*.out"))
            assert time.monotonic() < end, "\n".join((self.ask("scontrol", "show", "node", "--oneliner"), logs))
            time.sleep(0.2)


def free_ports(count: int) -> list[int]:
    """Return ports that no program uses."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]
