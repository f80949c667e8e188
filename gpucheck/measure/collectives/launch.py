"""Starts the ranks and waits no longer than the deadline: on one host by itself, on several by torchrun."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from gpucheck.measure.collectives.nccl_log import Taken, parse
from gpucheck.measure.collectives.values import Folder, RankError, RankReport, RankSpec
from gpucheck.processes.environment import nccl_files, rank_environment
from gpucheck.processes.group import Group, end
from gpucheck.processes.lifeline import stack_of
from gpucheck.processes.signals import undisturbed
from gpucheck.processes.temporary import private_environment, temporary_folder

POLL_S = 0.05
SETTLE_S = 2.0  # one rank's end makes the others raise: wait for what they have to say
STACK_S = 1.0
ENDING = ((signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0))  # SIGTERM lets torchrun end its ranks
PROGRAM_FILE = "collectives/rank.py"
TAIL = 400
Shape = TypeVar("Shape")


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """This host's place among several. address, port: where node 0 listens; interface: what leads there."""

    count: int
    rank: int
    address: str
    port: int
    interface: str | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended. where: by rank, the last step that it recorded. notes: what was changed in its environment.

    signals: of ranks that a signal ended, its number. stacks: of ranks that were stuck, the calls that they were in,
    innermost first.
    """

    reason: Literal["finished", "failed", "deadline"]
    seconds: float
    ranks: int
    reports: tuple[RankReport, ...] = ()
    errors: dict[int, RankError] = msgspec.field(default_factory=dict)
    where: dict[int, str] = msgspec.field(default_factory=dict)
    signals: dict[int, int] = msgspec.field(default_factory=dict)
    stacks: dict[int, tuple[str, ...]] = msgspec.field(default_factory=dict)
    taken: Taken = Taken()
    notes: tuple[str, ...] = ()
    said: str = ""


def launch(spec: RankSpec, ranks: int, deadline_s: float, nodes: Nodes | None = None, **extra: str) -> Ended:
    """Run the ranks of this host to their end, or to the deadline. extra: environment of the ranks.

    Nothing is left running or on disk. Raises OSError when no process can be started.
    """
    with temporary_folder("collectives") as path:
        folder = Folder(path)
        spec = msgspec.structs.replace(spec, file_store=nodes is None, parent_pid=os.getpid())
        folder.spec.write_bytes(msgspec.json.encode(spec))
        environment, removed = ranks_environment(os.environ, folder, nodes)
        environment |= extra | private_environment(path, environment)
        home = Path(environment.get("HOME", "/"))
        settings = nccl_files(home, several_hosts=_several(nodes)) if spec.backend == "nccl" else ()
        first = 0 if nodes is None else nodes.rank * ranks
        numbers = range(first, first + ranks)
        with (folder.path / "output").open("wb") as output:
            groups: list[Group] = []
            try:
                for command, place in _commands(folder, ranks, nodes):
                    groups.append(Group(command, environment | place, stdout=output, stderr=output))
                started = time.monotonic()
                reason = _watch(groups, started + deadline_s)
                stacks = _stacks(folder, numbers) if reason == "deadline" else {}
                # With torchrun the groups are not the ranks.
                states = [group.status() for group in groups] if nodes is None else []
            finally:
                with undisturbed():
                    end(groups, ENDING)
        return Ended(
            reason=reason,
            seconds=time.monotonic() - started,
            ranks=ranks * (nodes.count if nodes else 1),
            reports=tuple(r for n in numbers if (r := _decoded(folder.report(n), RankReport)) is not None),
            errors={n: e for n in numbers if (e := _decoded(folder.error(n), RankError)) is not None},
            signals={n: -state for n, state in enumerate(states) if state is not None and state < 0},
            stacks=stacks,
            where={n: _text(folder.at(n)) or "start" for n in numbers},
            taken=parse("".join(_text(log) for log in sorted(folder.path.glob("nccl.*")))),
            notes=(
                *(f"environment variable removed for the ranks: {pair}" for pair in removed),
                *(f"NCCL setting that the ranks follow, from {setting}" for setting in settings),
            ),
            said=_text(folder.path / "output")[-TAIL:].strip(),
        )


def ranks_environment(
    caller: Mapping[str, str], folder: Folder, nodes: Nodes | None
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The ranks' environment, and ``NAME=value`` of what was kept from them."""
    # On one host loopback always resolves, the host's own name often does not.
    several = _several(nodes)
    interface = "lo" if nodes is None else nodes.interface
    kept, removed = rank_environment(caller, interface=interface, several_hosts=several)
    ours = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,TUNING",
        "NCCL_DEBUG_FILE": str(folder.path / "nccl.%h.%p"),
    }
    return kept | ours, removed


def _several(nodes: Nodes | None) -> bool:
    """Whether the network between hosts is used, which the site configures."""
    return nodes is not None and nodes.interface != "lo"


def _commands(folder: Folder, ranks: int, nodes: Nodes | None) -> Iterator[tuple[list[str], dict[str, str]]]:
    """What is started on this host, with each one's own environment: every rank, or the agent that starts them."""
    program = ["-m", "gpucheck.measure.collectives.rank", str(folder.path)]
    if nodes is not None:
        agent = [
            *("-m", "gpucheck.measure.collectives.agent", str(os.getpid())),
            *(f"--nnodes={nodes.count}", f"--node-rank={nodes.rank}", f"--nproc-per-node={ranks}"),
            *(f"--master-addr={nodes.address}", f"--master-port={nodes.port}"),
        ]
        yield [sys.executable, *agent, *program], {}
        return
    for rank in range(ranks):
        yield [sys.executable, *program], {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}


def _watch(groups: list[Group], deadline: float) -> Literal["finished", "failed", "deadline"]:
    broken: float | None = None
    while True:
        states = [group.status() for group in groups]
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


def _stacks(folder: Folder, numbers: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Of each rank that still runs, the calls that it is in: asked for by a signal, which also a stuck one answers."""
    asked = [n for n in numbers if (pid := _text(folder.pid(n))) and _signal(int(pid))]
    until = time.monotonic() + STACK_S
    found: dict[int, tuple[str, ...]] = {}
    while len(found) < len(asked) and time.monotonic() < until:
        time.sleep(POLL_S)
        stacks = {n: stack_of(_text(folder.stack(n)), PROGRAM_FILE) for n in asked}
        found = {n: frames for n, frames in stacks.items() if frames}
    return found


def _signal(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGUSR1)
    except ProcessLookupError:
        return False
    return True


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
