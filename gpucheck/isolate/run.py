"""Run a search: the nodes that are meant, the tests on them, and the state from which a search goes on."""

import json
import os
import re
import resource
import shlex
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gpucheck.foreign import read_text
from gpucheck.isolate.launch import (
    NO_GPU,
    AllocationEndedError,
    Kind,
    Launcher,
    Peer,
    SearchProblem,
    check_allocation,
    last_line,
    round_seconds,
    run_on_each,
    run_round,
)
from gpucheck.isolate.report import Cut, Searched, report
from gpucheck.isolate.search import Known, Limits, Nodes, Results, Round, search
from gpucheck.isolate.simulated import GB_S, SimulatedFleet
from gpucheck.model.isolation import GroupTest, IsolationReport
from gpucheck.printable import some
from gpucheck.processes.signals import TerminatedError

MOST_STATE = 256 << 20
MOST_FILES = 1 << 17
FIRST_S = 60.0  # importing gpucheck and reading the GPUs of a node
NAMED = 4
# A launcher or a shell could read others as options, patterns or several hosts.
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,252}")


# Results by round and nodes, and what keeps one of a round.
ByRound = defaultdict[int, dict[Nodes, GroupTest]]
Add = Callable[[int, GroupTest], None]


class SearchOptions(NamedTuple):
    """switch_of: by node. lemons: nodes that were bad before, the worst first. state: where results are kept."""

    launcher: Launcher
    limits: Limits
    switch_of: Mapping[str, str]
    lemons: Sequence[str] = ()
    state: Path | None = None


class Watch(NamedTuple):
    """progress: gets a line for each round, during: one with each result of it, what is known and the time left.

    interrupted: gets the report of a search that a signal ends.
    """

    progress: Callable[[str], None] = lambda _: None
    during: Callable[[str], None] = lambda _: None
    interrupted: Callable[[IsolationReport], None] = lambda _: None


def isolate(options: SearchOptions, fleet: SimulatedFleet | None, watch: Watch) -> IsolationReport:
    """Search, and return the report. fleet: a simulated one instead of the launcher's nodes.

    Raises ValueError, a sentence for the user, if nodes differ, too few respond, or the state is of another search.
    A signal that ends the search is raised again after watch.interrupted.
    """
    started, clock = datetime.now(timezone.utc), time.monotonic()
    limits = options.limits
    silent: dict[str, str] = {}
    if fleet is not None:
        nodes, limits = fleet.nodes, limits._replace(expected_gb_s=limits.expected_gb_s or GB_S)
    else:
        # Each node has three open files.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, MOST_FILES), most))
        watch.progress(f"{len(options.launcher.peers)} nodes: their GPUs")
        nodes, silent, gpus = _alike(options.launcher)
        if not gpus:  # one rank on a processor each: it measures the network, and waits for processors
            limits = limits._replace(latency=None)
            options = options._replace(launcher=options.launcher._replace(ranks=1))
    tested, signal = _search(options._replace(limits=limits), nodes, fleet, watch)
    made = report(
        tested._replace(silent=silent),
        limits,
        nodes,
        truth=None if fleet is None else fleet.truth,
        host=socket.gethostname(),
        started=started.isoformat(timespec="seconds"),
        seconds=time.monotonic() - clock,
    )
    if signal is not None:
        watch.interrupted(made)
        raise signal
    return made


def _search(
    options: SearchOptions, nodes: Sequence[str], fleet: SimulatedFleet | None, watch: Watch
) -> tuple[Searched, BaseException | None]:
    """Return the rounds and the outcome; of a search that a signal ends, its complete rounds and the signal."""
    knowledge = Known(nodes, options.switch_of, options.limits, options.lemons)
    seconds = round_seconds(options.launcher)
    rounds: list[list[GroupTest]] = []
    stopped: BaseException | None = None
    cut: Cut | None = None

    def run(tests: Round) -> Results:
        nonlocal seconds, stopped, cut
        words, began = _words(len(rounds) + 1, tests), time.monotonic()
        watch.progress(f"{words}{_doubt(knowledge)}")
        known = results[len(rounds)]
        try:
            left = [test for test in tests if test not in known]
            ended = enumerate(fleet.run(left)) if fleet else run_round(options.launcher, left, len(rounds))
            for _, result in ended:
                known[result.nodes] = result
                add(len(rounds), result)
                left_s = seconds - (time.monotonic() - began)
                watch.during(_live(words, len(tests), known.values(), knowledge, left_s))
        except (KeyboardInterrupt, TerminatedError) as signal:
            stopped, cut = signal, "isolate.search-interrupted"
            return None
        except AllocationEndedError:
            cut = "isolate.allocation-interrupted"
            return None
        rounds.append([known[test] for test in tests])
        seconds = max(time.monotonic() - began, 1.0)  # the next one takes about as long
        return rounds[-1]

    with _state(options, nodes) as (results, add):
        outcome = search(knowledge, run)
    return Searched(rounds, outcome, {}, cut), stopped


def _words(number: int, tests: Round) -> str:
    pairs = sum(len(test) == 2 for test in tests)
    groups = [len(test) for test in tests if len(test) != 2]
    parts = [f"{pairs} pairs"] if pairs else []
    return f"round {number}, " + " and ".join([*parts, *(f"{size} nodes together" for size in groups)])


def _doubt(known: Known) -> str:
    names = known.doubtful()
    return f"; in doubt: {some(names, NAMED)}" if names else ""


def _live(words: str, count: int, results: Collection[GroupTest], known: Known, left_s: float) -> str:
    """Return what a person who waits wants to know while the tests of a round end."""
    bad = sum(one.state != "done" or not known.is_good(one) for one in results)
    ended = f"{len(results)} of {count} ended" + (f", {bad} bad" if bad else "")
    return f"{words}: {ended}{_doubt(known)}; about {max(left_s, 1.0):.0f} s left in this round"


@contextmanager
def _state(options: SearchOptions, nodes: Sequence[str]) -> Iterator[tuple[ByRound, Add]]:
    """Yield the results that the file of the state has, and what adds one: a line each, written as they come.

    The first line is what was searched. Without a file there are none.
    """
    known: ByRound = defaultdict(dict)
    path = options.state
    if path is None:
        yield known, lambda *_: None
        return
    head = {
        "schema": "gpucheck.isolation-state/1",
        "nodes": list(nodes),
        "switches": {name: options.switch_of[name] for name in nodes if name in options.switch_of},
        "lemons": list(options.lemons),
        "limits": list(options.limits),
        "test": [options.launcher.sizes, list(options.launcher.nics)],
    }
    lines = read_text(path, MOST_STATE).splitlines(keepends=True) if path.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    try:
        if whole and json.loads(whole[0]) != head:
            raise SearchProblem(
                f"{path}: state of a search of other nodes or options. Remove it, or choose another FILE."
            )
        for line in whole[1:]:
            at, result = msgspec.json.decode(line, type=tuple[int, GroupTest])
            known[at][result.nodes] = result
    except (json.JSONDecodeError, msgspec.DecodeError) as error:
        raise SearchProblem(f"{path}: not the state of a search: {error}. Remove it.") from error
    with path.open("ab") as file:

        def write(line: bytes) -> None:
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())

        file.truncate(sum(len(line.encode()) for line in whole))  # a last line that was cut off
        if not whole:
            write(json.dumps(head).encode())
        yield known, lambda at, result: write(msgspec.json.encode((at, result)))


def _alike(launcher: Launcher) -> tuple[list[str], dict[str, str], bool]:
    """Return the nodes that respond, which must have equal GPUs, why others did not, and whether they have GPUs.

    Raises ValueError.
    """
    command = shlex.join([launcher.gpucheck, "topo", "--format", "json"])
    by_kind: defaultdict[str, list[str]] = defaultdict(list)
    silent: dict[str, str] = {}
    for name, one in run_on_each(launcher, command, FIRST_S).items():
        try:
            kind = str(msgspec.json.decode(one.output, type=Kind))
        except msgspec.DecodeError:
            ended = one.status is not None
            silent[name] = f"exit status {one.status}: {last_line(one.errors)}" if ended else "no answer"
            continue
        by_kind[kind].append(name)
    if len(by_kind) > 1:
        listed = "; ".join(f"{kind}: {some(names, NAMED)}" for kind, names in sorted(by_kind.items()))
        raise SearchProblem(f"the nodes have different GPUs, so their bandwidth differs. Search one kind: {listed}.")
    nodes = [name for names in by_kind.values() for name in names]
    if len(nodes) < 2:
        try:
            check_allocation(launcher)
        except AllocationEndedError:
            raise SearchProblem("the Slurm allocation ended before the first test.") from None
        why = "; ".join(f"{name}: {reason}" for name, reason in list(silent.items())[:NAMED])
        raise SearchProblem(f"{len(nodes)} of {len(launcher.peers)} nodes respond, and a search needs two. {why}")
    return nodes, silent, NO_GPU not in by_kind


def launcher_of(
    nodes: Sequence[str], inventory: Path | None, environment: Mapping[str, str], *, least: int = 2, **options: Any
) -> Launcher:
    """Return what reaches the nodes that are meant: those of the present Slurm allocation if none are given.

    options: of the launcher. Raises ValueError, with a sentence for the user, if there are no nodes, or a name is not
    that of one host.
    """
    slurm = not nodes and inventory is None
    if slurm:
        allocation = environment.get("SLURM_JOB_NODELIST")
        if not allocation:
            raise SearchProblem("no nodes. Give --nodes or --inventory, or start this in a Slurm allocation (salloc).")
        names = _printed(["scontrol", "show", "hostnames", allocation]).split()
        peers = {name: Peer(name) for name in names}
    elif inventory is None:
        names = list(nodes)
        peers = {name: Peer(name, (name,)) for name in names}
    else:
        peers = _of_inventory(inventory, nodes)
        names = list(nodes) or list(peers)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SearchProblem(f"{some(twice, NAMED)}: given twice. A node takes part in one test at a time.")
    for name in (*names, *(peer.address for peer in peers.values())):
        if not HOST.fullmatch(name):
            raise SearchProblem(f"{name[:80]!a}: not the name of one host.")
    if len(names) < least:
        raise SearchProblem(f"{len(names)} node: a search needs two.")
    return Launcher(peers=peers, slurm=slurm, **options)


def _of_inventory(path: Path, nodes: Sequence[str]) -> dict[str, Peer]:
    program = Path(sys.executable).with_name("ansible-inventory")
    text = _printed([str(program) if program.exists() else "ansible-inventory", "-i", str(path), "--list"])
    try:
        groups = msgspec.json.decode(text, type=dict[str, _Group])
    except msgspec.DecodeError as error:
        raise SearchProblem(f"{path}: ansible-inventory printed something else than an inventory: {error}.") from error
    variables = groups.pop("_meta", _Group()).hostvars
    hosts = {host for one in groups.values() for host in one.hosts}
    group = groups.get("gpu", _Group()).hosts
    wanted = list(nodes) or group or sorted(hosts)
    missing = [name for name in wanted if name not in hosts]
    if missing:
        raise SearchProblem(f"{path}: {some(missing, NAMED)}: not in this inventory.")
    return {name: _peer(name, variables.get(name, {})) for name in wanted}


def _peer(name: str, variables: Mapping[str, Any]) -> Peer:
    """Return how Ansible's ssh connection reaches a host."""
    address, user = str(variables.get("ansible_host", name)), variables.get("ansible_user")
    key, port = variables.get("ansible_ssh_private_key_file"), variables.get("ansible_port")
    options = [*shlex.split(str(variables.get("ansible_ssh_common_args", "")))]
    options += ["-p", str(port)] if port else []
    options += ["-i", str(key)] if key else []
    options += ["-l", str(user)] if user else []
    return Peer(address, (*options, "--", address))


class _Group(msgspec.Struct):
    """A group, or ``_meta``, which has the variables of all hosts."""

    hosts: list[str] = []
    hostvars: dict[str, dict[str, Any]] = {}


def _printed(command: Sequence[str]) -> str:
    """Return what a program of this host prints. Raises ValueError."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    except FileNotFoundError:
        raise SearchProblem(f"{Path(command[0]).name}: no such program here. It lists the nodes.") from None
    except subprocess.CalledProcessError as error:
        raise SearchProblem(f"{Path(command[0]).name}: {last_line(error.stderr)}") from error
    except subprocess.TimeoutExpired:
        raise SearchProblem(f"{Path(command[0]).name}: no end within 60 s.") from None
    return done.stdout.decode(errors="replace")
