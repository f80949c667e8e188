"""Starts the ranks and waits no longer than the deadline: on one host by itself, on several by torchrun."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from gpucheck.measure.collectives.nccl_log import Taken, parse
from gpucheck.measure.collectives.values import Folder, RankError, RankReport, RankSpec

POLL_S = 0.05
SETTLE_S = 2.0  # one rank's end makes the others raise: wait for what they have to say
GRACE_S = 2.0
# A leftover of an earlier experiment would be measured in place of the machine.
LEFTOVERS = ("NCCL_", "TORCH_NCCL_", "TORCH_DISTRIBUTED_", "TORCHELASTIC_", "GLOO_")
RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "LOCAL_WORLD_SIZE")
TAIL = 400
Shape = TypeVar("Shape")


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """This host's place among several. address, port: where node 0 listens."""

    count: int
    rank: int
    address: str
    port: int


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a run was over. where: by rank, the last thing it put on record. removed: leftovers kept from the ranks."""

    reason: Literal["finished", "failed", "deadline"]
    seconds: float
    ranks: int
    reports: tuple[RankReport, ...] = ()
    errors: dict[int, RankError] = msgspec.field(default_factory=dict)
    where: dict[int, str] = msgspec.field(default_factory=dict)
    taken: Taken = Taken()
    removed: tuple[str, ...] = ()
    said: str = ""


def launch(spec: RankSpec, ranks: int, deadline_s: float, nodes: Nodes | None = None, **extra: str) -> Ended:
    """Run the ranks of this host to their end, or to the deadline. extra: environment of the ranks.

    Nothing is left running or on disk. Raises OSError when no process can be started.
    """
    with tempfile.TemporaryDirectory(prefix="gpucheck-collectives-", ignore_cleanup_errors=True) as path:
        folder = Folder(Path(path))
        spec = msgspec.structs.replace(spec, file_store=nodes is None, parent_pid=os.getpid())
        folder.spec.write_bytes(msgspec.json.encode(spec))
        environment, removed = rank_environment(os.environ, folder, single=nodes is None or _loopback(nodes))
        environment |= extra
        with (folder.path / "output").open("wb") as output:
            processes = _start(folder, ranks, nodes, environment, output.fileno())
            started = time.monotonic()
            try:
                reason = _watch(processes, started + deadline_s)
            finally:
                _stop(processes)
        first = 0 if nodes is None else nodes.rank * ranks
        numbers = range(first, first + ranks)
        return Ended(
            reason=reason,
            seconds=time.monotonic() - started,
            ranks=ranks * (nodes.count if nodes else 1),
            reports=tuple(r for n in numbers if (r := _decoded(folder.report(n), RankReport)) is not None),
            errors={n: e for n in numbers if (e := _decoded(folder.error(n), RankError)) is not None},
            where={n: _text(folder.at(n)) or "start" for n in numbers},
            taken=parse("".join(_text(log) for log in sorted(folder.path.glob("nccl.*")))),
            removed=removed,
            said=_text(folder.path / "output")[-TAIL:].strip(),
        )


def rank_environment(
    caller: Mapping[str, str], folder: Folder, *, single: bool
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The ranks' environment, and ``NAME=value`` of what was kept from them.

    On several hosts the network variables are the site's own business and stay.
    """
    network = ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "GLOO_SOCKET_IFNAME", "NCCL_IB_DISABLE")
    kept = {
        name: value
        for name, value in caller.items()
        if name not in RENDEZVOUS and (not name.startswith(LEFTOVERS) or (not single and name in network))
    }
    ours = {
        "OMP_NUM_THREADS": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,TUNING",
        "NCCL_DEBUG_FILE": str(folder.path / "nccl.%h.%p"),
    }
    if single:
        # Loopback always resolves, the host's own name often does not.
        ours |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    removed = tuple(f"{name}={caller[name]}" for name in sorted(caller) if name not in kept and name not in RENDEZVOUS)
    return kept | ours, removed


def _loopback(nodes: Nodes) -> bool:
    return nodes.address.startswith("127.") or nodes.address in ("localhost", "::1")


def _start(
    folder: Folder, ranks: int, nodes: Nodes | None, environment: dict[str, str], output: int
) -> list[subprocess.Popen[bytes]]:
    program = ["-m", "gpucheck.measure.collectives.rank", str(folder.path)]
    if nodes is not None:
        torchrun = [
            *("-m", "torch.distributed.run", f"--nnodes={nodes.count}", f"--node-rank={nodes.rank}"),
            *(f"--nproc-per-node={ranks}", f"--master-addr={nodes.address}", f"--master-port={nodes.port}"),
        ]
        return [_process([sys.executable, *torchrun, *program], environment, output)]
    return [
        _process(
            [sys.executable, *program],
            environment | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)},
            output,
        )
        for rank in range(ranks)
    ]


def _process(command: list[str], environment: dict[str, str], output: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        # Ctrl-C on the terminal reaches the parent, which ends the ranks.
        start_new_session=True,
    )


def _watch(processes: list[subprocess.Popen[bytes]], deadline: float) -> Literal["finished", "failed", "deadline"]:
    broken: float | None = None
    while True:
        states = [process.poll() for process in processes]
        now = time.monotonic()
        if all(state == 0 for state in states):
            return "finished"
        if broken is None and any(state not in (None, 0) for state in states):
            broken = now
        if broken is not None and (None not in states or now - broken > SETTLE_S):
            return "failed"
        if broken is None and now > deadline:
            return "deadline"
        time.sleep(POLL_S)


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    """SIGTERM lets torchrun end its ranks, SIGKILL ends the rest; what sits in the driver is left behind."""
    for number, patience in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        until = time.monotonic() + patience
        while any(process.poll() is None for process in processes) and time.monotonic() < until:
            time.sleep(POLL_S)


def _decoded(path: Path, shape: type[Shape]) -> Shape | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=shape)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
