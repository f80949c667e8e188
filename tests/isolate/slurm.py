"""A real Slurm on the nodes of tests/isolate/nodes.py: munge, a controller here and a slurmd in each namespace.

With proctrack/cgroup, task/cgroup and ConstrainDevices where this machine has the hierarchies of cgroup v1. Debian's
packages are unpacked, not installed; GPUCHECK_SLURM_ROOT names a directory that has them already.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.isolate.nodes import NETWORK, run

PACKAGES = (
    "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "libmunge2", "libhwloc15", "libjson-c5",
)  # fmt: skip
GPUS = 2
DEVICES = Path("/dev/gpucheck-test")
CGROUP_V1 = all(Path("/sys/fs/cgroup", name).is_dir() for name in ("devices", "freezer", "cpuset", "memory"))
CONF = """ClusterName=gpucheck
SlurmctldHost={host}({network}.254)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
PluginDir={libraries}/slurm-wlm
ProctrackType=proctrack/{tracking}
TaskPlugin=task/{tasks}
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=5
UnkillableStepTimeout=20
GresTypes=gpu
{nodes}
PartitionName=p Nodes=ALL Default=YES MaxTime=30 State=UP
"""


def programs(folder: Path) -> Path:
    """Return a directory with Slurm's programs. Raises CalledProcessError where the packages cannot be had."""
    if named := os.environ.get("GPUCHECK_SLURM_ROOT"):
        return Path(named)
    folder.mkdir()
    subprocess.run(["apt-get", "-qq", "download", *PACKAGES], cwd=folder, check=True, capture_output=True)
    for package in folder.glob("*.deb"):
        run("dpkg", "-x", str(package), str(folder))
    return folder


class Slurm:
    """environment: of what a user types."""

    def __init__(self, folder: Path, root: Path, names: Sequence[str]) -> None:
        libraries = root / "usr/lib/x86_64-linux-gnu"
        self.folder, self.names, self._root = folder, names, root
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.environment = {
            "PATH": f"{root}/usr/bin:{root}/usr/sbin:{os.environ['PATH']}",
            "HOME": str(folder),
            "LD_LIBRARY_PATH": f"{libraries}/slurm-wlm:{libraries}",
            "SLURM_CONF": str(folder / "slurm.conf"),
        }
        host = socket.gethostname().partition(".")[0]
        nodes = (
            f"NodeName={name} NodeHostname={host} NodeAddr={NETWORK}.{at + 1} CPUs=2 Gres=gpu:{GPUS}"
            for at, name in enumerate(names)
        )
        (folder / "slurm.conf").write_text(
            CONF.format(
                host=host,
                folder=folder,
                network=NETWORK,
                port=_free_port(),
                libraries=libraries,
                nodes="\n".join(nodes),
                tracking="cgroup" if CGROUP_V1 else "linuxproc",
                tasks="cgroup" if CGROUP_V1 else "none",
            )
        )
        (folder / "cgroup.conf").write_text("CgroupAutomount=yes\nCgroupPlugin=cgroup/v1\nConstrainDevices=yes\n")
        (folder / "gres.conf").write_text("".join(f"Name=gpu File={DEVICES}/gpu{at}\n" for at in range(GPUS)))
        (folder / "hosts").write_text(
            "127.0.0.1 localhost\n" + "".join(f"{NETWORK}.{at + 1} {name}\n" for at, name in enumerate(names))
        )
        (folder / "state").mkdir()

    def start(self) -> None:
        """Start all and wait for the nodes. Raises AssertionError."""
        shutil.rmtree(DEVICES, ignore_errors=True)
        DEVICES.mkdir()
        for at in range(GPUS):  # as the files of GPUs: a driver of no device
            os.mknod(DEVICES / f"gpu{at}", 0o020666, os.makedev(195, 240 + at))
        key, socket_ = self.folder / "munge.key", self.folder / "munge.socket"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self._open(
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={socket_}",
            *(f"--{name}-file={self.folder}/munge.{name}" for name in ("pid", "log", "seed")),
        )  # fmt: skip
        self._open(self._find("slurmctld"), "-D", name="slurmctld")
        # Slurm reads its role from the name it is started by, and Debian's files have other names.
        step = self.folder / "slurmstepd"
        step.symlink_to(self._find("slurmstepd"))
        hosts = f'mount --bind {self.folder}/hosts /etc/hosts; exec -a slurmd "$@"'
        for name in self.names:
            space = ("nsenter", f"--net=/run/netns/{name}", "unshare", "--mount", "bash", "-c", hosts, "slurmd")
            self._open(*space, self._find("slurmd"), "-D", "-N", name, "-d", str(step))
        self.until_idle()

    def until_idle(self) -> None:
        """Wait until all nodes are. Raises AssertionError."""
        until = time.monotonic() + 90
        while (states := self.ask("sinfo", "-h", "-N", "-o", "%T").split()) != ["idle"] * len(self.names):
            logs = "".join(path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*.out"))
            assert time.monotonic() < until, f"{states}\n{logs}"
            time.sleep(0.3)

    def stop(self) -> None:
        self.ask("scancel", "--me")
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(15)
            daemon.kill()
        shutil.rmtree(DEVICES, ignore_errors=True)

    def ask(self, *words: str) -> str:
        """Return what a command of Slurm prints."""
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False).stdout

    def _find(self, name: str) -> str:
        found = shutil.which(f"{name}-wlm", path=self.environment["PATH"]) or shutil.which(
            name, path=self.environment["PATH"]
        )
        assert found, name
        return found

    def _open(self, *words: str, name: str | None = None) -> None:
        command = [name or words[0], *words[1:]]
        path = shutil.which(words[0], path=self.environment["PATH"])
        with (self.folder / f"{len(self._daemons)}.out").open("wb") as out:
            self._daemons.append(
                subprocess.Popen(
                    command, executable=path, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
                )
            )


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


@contextmanager
def slurm(folder: Path, names: Sequence[str]) -> Iterator[Slurm]:
    """Yield a running Slurm; nothing is left of it."""
    made = Slurm(folder, programs(folder / "programs"), names)
    try:
        made.start()
        yield made
    finally:
        made.stop()
