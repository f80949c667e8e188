"""Run collectives on groups of nodes at the same time, over ssh or as Slurm steps, and read what rank 0 printed."""

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

import msgspec

from gpucheck.isolate.search import Nodes, Round
from gpucheck.model.collectives import SCHEMA as COLLECTIVES
from gpucheck.model.collectives import CollectivesReport
from gpucheck.model.finding import EXIT_STATUS, Verdict
from gpucheck.model.isolation import GroupTest, State
from gpucheck.printable import one_line
from gpucheck.processes.group import Group, end

# A node's ranks end by themselves; then timeout(1) ends them there; then this process ends its client. ALONE_S: after
# the first node of a test ended, the others cannot go on.
START_S, HERE_S, ALONE_S = 75.0, 15.0, 20.0
PATIENCE = ((signal.SIGTERM, 3.0), (signal.SIGKILL, 1.0))
POLL_S = 0.02
MOST_BYTES = 8 << 20
FIRST_PORT, PORTS, STRIDE = 20_000, 10_000, 617
PORT_IN_USE = b"port is in use"
# Ends the program when the client ends: ssh leaves what it started running otherwise. $0: seconds.
WATCHED = (
    "exec 3<&0; timeout -k 5 {seconds:.0f} {command} </dev/null 3<&- & child=$!; "
    '{{ cat <&3 >/dev/null; kill "$child" 2>/dev/null; }} & wait "$child"'
)
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15", "-T")
ALIVE = (b"RUNNING", b"SUSPENDED", b"STOPPED", b"CONFIGURING", b"RESIZING", b"SIGNALING")  # squeue(1), of 22.05
NO_GPU = "no GPU"
FAILED_BY_SSH, ENDED_BY_TIMEOUT = 255, (124, 137)


class SearchProblem(ValueError):
    """Why these nodes cannot be searched: a sentence for the user."""


class AllocationEndedError(Exception):
    """The Slurm allocation ended: what failed after that states nothing about a node."""


class Peer(NamedTuple):
    """How a node is reached. address: as the other nodes know it. ssh: options and the target of ssh."""

    address: str
    ssh: tuple[str, ...] = ()


class Launcher(NamedTuple):
    """peers: by node. slurm: as steps of the present allocation. seconds: of one test, after its ranks started, for
    which they have start_s.

    gpucheck: the command on the nodes. sizes: of the messages. nics: network cards that are tested alone as well.
    ranks: on each node, None is one per GPU. port: of the first test.
    """

    peers: Mapping[str, Peer]
    slurm: bool
    seconds: float = 60.0
    start_s: float = START_S
    gpucheck: str = "gpucheck"
    sizes: str = "8K,128M"
    nics: tuple[str, ...] = ()
    ranks: int | None = None
    port: int = FIRST_PORT


class _Running(NamedTuple):
    node: str
    group: Group
    output: IO[bytes]
    errors: IO[bytes]


def run_round(launcher: Launcher, tests: Round, number: int) -> Iterator[tuple[int, GroupTest]]:
    """Yield the number and the result of each test as it ends; all run at the same time.

    number: of the round. Its ports are others than those of the round before, to which a late rank may still connect.
    A rendezvous port that another program uses is replaced once. Nothing is left running here or on the nodes.
    Raises AllocationEndedError.
    """
    again: list[int] = []
    launcher = launcher._replace(port=launcher.port + STRIDE * number)
    runs = 1 + len(launcher.nics)
    seconds = round_seconds(launcher)
    for ports, numbers in ((0, list(range(len(tests)))), (len(tests), again)):
        started = {at: _start(launcher, tests[at], runs * (ports + at)) for at in numbers}
        for at, ended in _finish(started, seconds):
            result = read_test(tests[at], ended, launcher.nics)
            if ports == 0 and any(PORT_IN_USE in errors for _, _, _, errors in ended):
                again.append(at)
                continue
            if result.state != "done":
                check_allocation(launcher)
            yield at, result


def round_seconds(launcher: Launcher) -> float:
    """Return after how long a round is ended."""
    return (1 + len(launcher.nics)) * (launcher.seconds + launcher.start_s) + HERE_S


def check_allocation(launcher: Launcher) -> None:
    """Raise AllocationEndedError if Slurm states that the allocation of these nodes ended."""
    if not launcher.slurm:
        return
    command = ["squeue", "--noheader", "--format=%T", f"--jobs={os.environ.get('SLURM_JOB_ID', '')}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=HERE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return
    # Of a job that ended a moment ago, nothing is printed. A controller that does not respond states neither.
    if (done.returncode == 0 and done.stdout.strip() not in ALIVE) or b"Invalid job id" in done.stderr:
        raise AllocationEndedError


def run_on_each(launcher: Launcher, command: str, seconds: float) -> dict[str, "Ended"]:
    """Return what a command printed on each node, at the same time on all."""
    started = {at: [_open(launcher, name, command, seconds)] for at, name in enumerate(launcher.peers)}
    answers = {ended[0].node: ended[0] for _, ended in _finish(started, seconds + 30.0)}
    return {name: answers[name] for name in launcher.peers}


class Ended(NamedTuple):
    """One node's part. status: exit status, None if it did not end in time."""

    node: str
    status: int | None
    output: bytes
    errors: bytes


def _start(launcher: Launcher, nodes: Nodes, number: int) -> list[_Running]:
    place = launcher.peers[nodes[0]].address
    limits = ["--sizes", launcher.sizes, "--timeout", f"{launcher.seconds:g}"]
    limits += ["--ranks", str(launcher.ranks)] if launcher.ranks else []
    command = shlex.join([launcher.gpucheck, "collectives", "--only", "all_reduce", *limits, "--format", "json"])
    out = []
    for rank, name in enumerate(nodes):
        commands = []
        for run, nic in enumerate((None, *launcher.nics)):
            port = FIRST_PORT + (launcher.port - FIRST_PORT + number + run) % PORTS
            group: dict[str, object] = {"GROUP_WORLD_SIZE": len(nodes), "GROUP_RANK": rank}
            # NCCL takes the cards whose names start so; with = the one of that name.
            card = {"NCCL_IB_HCA": f"={nic}", "GLOO_SOCKET_IFNAME": nic} if nic else {}
            variables = group | {"MASTER_ADDR": place, "MASTER_PORT": port} | card
            setting = " ".join(f"{key}={shlex.quote(str(value))}" for key, value in variables.items())
            commands.append(f"env {setting} {command}")
        seconds = len(commands) * (launcher.seconds + launcher.start_s)
        out.append(_open(launcher, name, "; ".join(commands) if launcher.nics else commands[0], seconds))
    return out


def _open(launcher: Launcher, name: str, command: str, seconds: float) -> _Running:
    """Start a command on one node. Raises OSError if this host cannot start the client."""
    # Without the trap the shell ends first, and timeout(1) with it: a stopped program would stay on the node.
    command = f"trap 'exit 143' TERM; {command}"
    script = WATCHED.format(seconds=seconds, command=f"sh -c {shlex.quote(command)}")
    if launcher.slurm:
        step = ["srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={name}", "--kill-on-bad-exit=0", "--quiet"]
        argv = [*step, "timeout", "-k", "5", f"{seconds:.0f}", "sh", "-c", command]
    else:
        argv = [*SSH, *launcher.peers[name].ssh, script]
    files = [os.fdopen(os.memfd_create(stream), "w+b") for stream in ("stdout", "stderr")]
    # Its stdin stays open until the client ends.
    group = Group(argv, os.environ, stdin=-1, stdout=files[0], stderr=files[1])
    return _Running(name, group, *files)


def _finish(
    started: Mapping[int, Sequence[_Running]], seconds: float, clock: Callable[[], float] = time.monotonic
) -> Iterator[tuple[int, list[Ended]]]:
    left, until = dict(started), dict.fromkeys(started, clock() + seconds)
    try:
        while left:
            for at, parts in list(left.items()):
                running = [part for part in parts if part.group.status() is None]
                if len(running) < len(parts):
                    until[at] = min(until[at], clock() + ALONE_S)
                if not running or clock() > until[at]:
                    del left[at]
                    yield at, _end(parts)
            time.sleep(POLL_S)
    finally:
        end([part.group for parts in left.values() for part in parts], PATIENCE)


def _end(parts: Sequence[_Running]) -> list[Ended]:
    statuses = [part.group.status() for part in parts]
    end([part.group for part in parts], PATIENCE if None in statuses else ((signal.SIGKILL, 0.0),))
    ended = []
    for part, status in zip(parts, statuses, strict=True):
        kept = []
        for file in (part.output, part.errors):
            file.seek(0)
            kept.append(file.read(MOST_BYTES))
            file.close()
        ended.append(Ended(part.node, status, *kept))
    return ended


def read_test(nodes: Nodes, ended: Sequence[Ended], nics: Sequence[str] = ()) -> GroupTest:
    """Return the result of one test from what its nodes printed; what is cut off or not understood states nothing.

    The first report is of all network cards, the next ones are of each of `nics` alone.
    """
    silent = next((one for one in ended if one.status == FAILED_BY_SSH and not one.output), None)
    if silent is not None:
        return GroupTest(nodes=nodes, state="silent", detail=f"{silent.node}: {last_line(silent.errors)}")
    reports = _reports(ended[0].output)
    if not reports:
        late = [one for one in ended if one.status is None or one.status in ENDED_BY_TIMEOUT]
        failed = any(one.status not in EXIT_STATUS.values() for one in ended if one not in late)
        why = next((f"{one.node}: {last_line(one.errors)}" for one in ended if one.errors.strip()), "no report")
        state: State = "failed" if failed else "hung" if late else "unreadable"
        return GroupTest(nodes=nodes, state=state, detail=why)
    results = [_result(nodes, one) for one in reports]
    bad = next((one for one in results if one.state != "done"), None)
    if bad is not None:
        return bad
    if len(results) != 1 + len(nics):
        return GroupTest(nodes=nodes, state="unreadable", detail=f"{len(results)} of {1 + len(nics)} reports")
    each = {nic: one.busbw_gb_s or 0.0 for nic, one in zip(nics, results[1:], strict=True)}
    return msgspec.structs.replace(results[0], nics=each)


def _reports(output: bytes) -> list[CollectivesReport]:
    """Return the reports that follow each other; none if anything is cut off."""
    text, decoder, found = output.decode(errors="replace").strip(), json.JSONDecoder(), []
    try:
        while text:
            document, end_ = decoder.raw_decode(text)
            found.append(msgspec.convert(document, CollectivesReport))
            text = text[end_:].lstrip()
    except (ValueError, RecursionError, msgspec.ValidationError):
        return []
    return found


def _result(nodes: Nodes, answer: CollectivesReport) -> GroupTest:
    if answer.schema != COLLECTIVES or answer.nodes != len(nodes):
        return GroupTest(nodes=nodes, state="unreadable", detail="a report of another run")
    codes = {one.code: str(one.seen or "") for one in answer.findings if one.verdict is not Verdict.PASS}
    done = [one for one in answer.results if one.operation == "all_reduce" and one.time_us]
    done.sort(key=lambda one: one.size_bytes)
    if "measure.ranks-wait" in codes:
        return GroupTest(nodes=nodes, state="hung", detail=one_line(codes["measure.ranks-wait"]))
    if any(one.wrong for one in done):
        return GroupTest(nodes=nodes, state="wrong", detail=f"{sum(one.wrong for one in done)} elements wrong")
    if len(done) < 2 or done[-1].busbw_gb_s is None:
        why = next(iter(codes.values()), "the report has not both sizes")
        return GroupTest(nodes=nodes, state="failed" if codes else "unreadable", detail=one_line(why))
    return GroupTest(nodes=nodes, state="done", busbw_gb_s=done[-1].busbw_gb_s, latency_us=done[0].time_us)


def last_line(errors: bytes) -> str:
    """Return the last line that a program wrote to stderr."""
    lines = errors.decode(errors="replace").strip().splitlines()
    return one_line(lines[-1]) if lines else "no message"


class _Gpu(msgspec.Struct):
    name: str | None = None


class Kind(msgspec.Struct):
    """The GPUs of a node as the JSON of topo and of verify has them."""

    gpus: list[_Gpu] = []

    def __str__(self) -> str:
        models = ", ".join(sorted({gpu.name or "GPU" for gpu in self.gpus}))
        return f"{len(self.gpus)} x {one_line(models)}" if self.gpus else NO_GPU
