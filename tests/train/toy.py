"""A rank's program without torch: the phases, the waiting for each other and the ways to misbehave of a real one.

One step takes a millisecond, so every way in which a run can go wrong is seen in well under a second. What one
process does to itself beyond the faults of the spec is asked for by the environment variable TOY.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from gpucheck.model.smoke import Checkpoint, Reference
from gpucheck.train.progress import Progress, RankDevice, RankReport
from gpucheck.train.spec import RankSpec

NOISE_BYTES = 4_000_000


class Peers:
    """An all-reduce of nothing: returns when every rank has arrived, raises when one is gone."""

    def __init__(self, folder: str, rank: int, world_size: int) -> None:
        self.folder, self.rank, self.world = Path(folder), rank, range(world_size)
        (self.folder / f"peer-{rank}").write_text(str(os.getpid()))

    def meet(self, where: str) -> None:
        (self.folder / f"{where}-{self.rank}").touch()
        while missing := [rank for rank in self.world if not self._arrived(where, rank)]:
            for rank in missing:
                pid = self.folder / f"peer-{rank}"
                # A peer that arrives now and ends right after was there.
                if pid.exists() and _gone(pid.read_text() or str(os.getpid())) and not self._arrived(where, rank):
                    raise ConnectionError(f"Connection closed by peer {rank}")
            time.sleep(0.001)

    def _arrived(self, where: str, rank: int) -> bool:
        return (self.folder / f"{where}-{rank}").exists()


def _gone(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def run(spec: RankSpec, progress: Progress) -> RankReport:
    """Step with the others to the end."""
    options = spec.options
    progress.enter("import")
    mischief = os.environ.get("TOY", "")
    progress.enter("init")
    peers = Peers(spec.folder, spec.rank, options.world_size)
    progress.on_device(f"toy:{spec.rank}", None)
    progress.enter("data")
    for step in range(1, options.steps + 1):
        progress.enter("forward", step)
        if step == 3 and spec.rank == 1:
            misbehave(mischief, peers, progress.sender.descriptor)
        time.sleep(0.001)
        progress.enter("backward", step)
        progress.enter("allreduce", step)
        peers.meet(f"step-{step}")
        progress.enter("optimizer", step)
    progress.enter("reference")
    return report(spec, progress)


EXITS = {"leave": 0, "noise, leave": 0, "leave-badly": 7}
SIGNALS = {"stop": signal.SIGSTOP, "crash": signal.SIGSEGV, "slow-crash": signal.SIGSEGV, "family": signal.SIGKILL}
RAISES = {
    "raise": ArithmeticError("injected failure"),
    "long-message": RuntimeError("first line\n" + "native frame\n" * 100),
}


def misbehave(how: str, peers: Peers, pipe: int) -> None:
    if how.startswith("noise"):
        sys.stdout.buffer.write(b"\xff\x00noise\n" * (NOISE_BYTES // 8))
        sys.stdout.flush()
    if how in EXITS:
        os._exit(EXITS[how])
    if how in RAISES:
        raise RAISES[how]
    if how == "family":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    elif how == "slow-crash":
        (peers.folder / f"peer-{peers.rank}").write_text("0")  # for its peers this rank is gone
        time.sleep(0.4)
    elif how == "missing":
        import gpucheck_no_such_package  # type: ignore[import-not-found] # noqa: F401
    elif how == "imports":
        import random
        import tempfile

        assert random.random() < 1
        assert tempfile.gettempdir()
    elif how == "garbage":
        os.write(pipe, os.urandom(512) + b"\n")
        os._exit(0)
    elif how == "out-of-memory":  # as a cgroup or ulimit does to a rank that needs more than it may have
        resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))
        bytearray(1 << 30)
    if how in SIGNALS:
        os.kill(os.getpid(), SIGNALS[how])


def report(spec: RankSpec, progress: Progress) -> RankReport:
    same, fed = ("ab" * 32,) * spec.options.world_size, ("ef" * 32,) * spec.options.world_size
    reference = Reference(max_abs_difference=0.0, max_relative_difference=0.0, loss_last=0.1, data_hashes=fed)
    return RankReport(
        rank=spec.rank,
        world_size=spec.options.world_size,
        model="toy",
        backend="files",
        placement="cpu",
        placement_reason="a toy",
        devices=(RankDevice(name=f"toy:{spec.rank}"),),
        losses=(2.0,) * (spec.options.steps - 1) + (0.1,),
        gradient_hashes=("cd" * 32,) * spec.options.steps,
        data_hash="ef" * 32,
        checkpoints=(Checkpoint(step=spec.options.steps, parameters=same, gradients=same, optimizer=same),),
        accuracy=1.0,
        held_out=10,
        references=(reference,),
        seconds=dict(progress.seconds),
        samples=10,
        samples_seconds=1.0,
        versions={"torch": None},
    )
