"""A real Slurm on the nodes of tests/isolate/nodes.py: munge, a controller here and a slurmd in each namespace.

With proctrack/cgroup, task/cgroup and ConstrainDevices where this machine has the hierarchies of cgroup v1.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.isolate.nodes import NETWORK
from tests.slurm import HOST, Slurm, unpack

GPUS = 2
DEVICES = Path("/dev/gpucheck-test")
CGROUP_V1 = all(Path("/sys/fs/cgroup", name).is_dir() for name in ("devices", "freezer", "cpuset", "memory"))


@contextmanager
def slurm(folder: Path, names: Sequence[str]) -> Iterator[Slurm]:
    """Yield a running Slurm; nothing is left of it."""
    programs = folder / "programs"
    programs.mkdir()
    unpack(programs)
    made = Slurm(folder, programs, names)
    _configure(made)
    try:
        shutil.rmtree(DEVICES, ignore_errors=True)
        DEVICES.mkdir()
        for at in range(GPUS):  # as the files of GPUs: a driver of no device
            os.mknod(DEVICES / f"gpu{at}", 0o020666, os.makedev(195, 240 + at))
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        files = (f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed"))
        made.open("munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files)
        hosts = f'mount --bind {folder}/hosts /etc/hosts; exec -a slurmd "$@"'
        made.start(lambda name: ("nsenter", f"--net=/run/netns/{name}", "unshare", "--mount", "bash", "-c", hosts, ""))
        yield made
    finally:
        made.stop()
        shutil.rmtree(DEVICES, ignore_errors=True)


def _configure(made: Slurm) -> None:
    nodes = {name: f"{NETWORK}.{at + 1}" for at, name in enumerate(made.nodes)}
    made.configure(
        f"{NETWORK}.254",
        "AuthType=auth/munge",
        f"AuthInfo=socket={made.folder}/munge.socket",
        f"ProctrackType=proctrack/{'cgroup' if CGROUP_V1 else 'linuxproc'}",
        f"TaskPlugin=task/{'cgroup' if CGROUP_V1 else 'none'}",
        "ReturnToService=2",
        "UnkillableStepTimeout=20",
        "GresTypes=gpu",
        *(f"NodeName={name} NodeHostname={HOST} NodeAddr={at} CPUs=2 Gres=gpu:{GPUS}" for name, at in nodes.items()),
    )
    (made.folder / "cgroup.conf").write_text("CgroupAutomount=yes\nCgroupPlugin=cgroup/v1\nConstrainDevices=yes\n")
    (made.folder / "gres.conf").write_text("".join(f"Name=gpu File={DEVICES}/gpu{at}\n" for at in range(GPUS)))
    hosts = ["127.0.0.1 localhost", *(f"{at} {name}" for name, at in nodes.items())]
    (made.folder / "hosts").write_text("".join(f"{line}\n" for line in hosts))
