"""Vet the nodes of a job before it starts: quick checks on all, pairs of those that pass, and a list of the rest."""

import os
import shlex
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpucheck.isolate.launch import Ended, Kind, Launcher, check_allocation, last_line, run_on_each, run_round
from gpucheck.isolate.search import Known, Limits, Outcome, Results, Round, search
from gpucheck.printable import one_line

QUICK_S = 40.0
LEAST_S = 15.0  # what another round takes at least
# Pairs, suspects with good nodes, and those of two bad nodes once more.
ROUNDS = 3
PASSING, FAILING, TASKS = "passing_nodes.txt", "failing_nodes.txt", "task_nodes.txt"


class Vetted(NamedTuple):
    """good: in the order of the allocation. bad: why, by node. seconds: what it took."""

    good: tuple[str, ...]
    bad: dict[str, str]
    seconds: float


class _Found(msgspec.Struct):
    verdict: str
    check: str = ""
    seen: str | int | float | bool | None = None
    because_of: str | None = None


class _Report(msgspec.Struct):
    verdict: str
    topology: Kind | None = None
    findings: list[_Found] = []
    interrupted: bool = False


def vet(launcher: Launcher, seconds: float, progress: Callable[[str], None] = lambda _: None) -> Vetted:
    """Vet all nodes of the launcher within about these seconds. A node that cannot be vetted does not pass.

    Only FAIL, no whole answer and no GPU leave a node out: a user's quick checks are UNKNOWN where they need root.
    Raises AllocationEndedError.
    """
    began = time.monotonic()
    progress(f"quick checks on {len(launcher.peers)} nodes")
    # Nothing of the node's other users: a job sees its own GPUs.
    command = shlex.join([launcher.gpucheck, "verify", "--level", "quick", "--format", "json"])
    answers = run_on_each(launcher, command, min(QUICK_S, seconds / 2))
    bad = {name: why for name, one in answers.items() if (why := _unfit(one))}
    if bad:
        check_allocation(launcher)
    bad |= _unlike({name: one for name, one in answers.items() if name not in bad})
    good = [name for name in launcher.peers if name not in bad]
    if len(good) > 1:
        outcome, tested = _pairs(launcher, good, began + seconds, progress)
        bad |= dict.fromkeys(outcome.nodes, "slow or hanging with two other nodes that are good")
        bad |= dict.fromkeys((*outcome.kinds, *outcome.open), "its tests with other nodes were bad")
        bad |= {name: "not tested in time" for name in good if name not in tested}
    return Vetted(tuple(name for name in good if name not in bad), bad, time.monotonic() - began)


def _pairs(
    launcher: Launcher, nodes: Sequence[str], until: float, progress: Callable[[str], None]
) -> tuple[Outcome, set[str]]:
    """Return what a short search found, and the nodes whose tests ended in time."""
    known, tested = Known(nodes, {}, Limits(rounds=ROUNDS, latency=None, brief=True)), set[str]()

    def run(tests: Round) -> Results:
        left = until - time.monotonic()
        if left < LEAST_S:
            return None
        progress(f"round {known.round + 1}, {len(tests)} pairs")
        in_time = launcher._replace(seconds=min(launcher.seconds, left / 2), start_s=left / 2)
        results = dict(run_round(in_time, tests, known.round + 1))
        tested.update(name for test in tests for name in test)
        return [results[at] for at in range(len(tests))]

    return search(known, run), tested


def _unfit(answer: Ended) -> str | None:
    """Return why a node cannot take the job, None if it can."""
    try:
        found = msgspec.json.decode(answer.output, type=_Report)
    except msgspec.DecodeError:
        return f"no report: {last_line(answer.errors)}" if answer.errors.strip() else "no report in time"
    if found.verdict != "fail":
        read = found.topology is not None and found.topology.gpus
        return "its quick checks did not end in time" if found.interrupted else None if read else "no GPU was read"
    worst = next((one for one in found.findings if one.verdict == "fail" and one.because_of is None), None)
    return one_line(f"{worst.check}: {worst.seen}") if worst else "fail"


def _unlike(answers: Mapping[str, Ended]) -> dict[str, str]:
    """Return the nodes with other GPUs than most, or fewer: of a GPU that is gone from the bus a node shows nothing."""
    kinds = {name: str(msgspec.json.decode(one.output, type=_Report).topology) for name, one in answers.items()}
    usual, count = next(iter(Counter(kinds.values()).most_common(1)), ("", 0))
    most = 2 * count > len(kinds)
    return {name: f"{kind}, most nodes have {usual}" for name, kind in kinds.items() if most and kind != usual}


def choose(good: Sequence[str], wanted: int, lemons: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes of the job, in their order. Those that were bad before are left out first, the worst of all."""
    left_out = [*(name for name in lemons if name in good), *(name for name in reversed(good) if name not in lemons)]
    return tuple(name for name in good if name not in left_out[: max(0, len(good) - wanted)])


def job_environment(caller: Mapping[str, str], vetted: Vetted, nodes: Sequence[str], folder: Path) -> dict[str, str]:
    """Write what passed and what failed, a node a line, and return the environment of a job on these nodes, if any.

    Also written is the file of hosts that srun takes. Raises OSError.
    srun ignores the list of nodes in the environment; it takes the nodes of a file, a line a task, with the
    distribution "arbitrary". Source: srun(1), --distribution and "INPUT ENVIRONMENT VARIABLES"; tried with 22.05.
    """
    lists = folder.absolute()
    (lists / PASSING).write_text("".join(f"{name}\n" for name in vetted.good), encoding="utf-8")
    failing = (f"{name} {one_line(why)}\n" for name, why in vetted.bad.items())
    (lists / FAILING).write_text("".join(failing), encoding="utf-8")
    if not nodes:
        return {}
    out = {**caller, "MASTER_ADDR": nodes[0], "GPUCHECK_HOSTFILE": os.fspath(lists / PASSING)}
    if "SLURM_JOB_ID" not in caller:
        return out
    words = (caller.get("SLURM_NTASKS_PER_NODE", ""), caller.get("SLURM_NTASKS", ""), caller.get("SLURM_NNODES", ""))
    each, tasks, before = (int(word) if word.isdecimal() else 0 for word in words)
    each = each or (tasks // before if before else 0) or 1
    (lists / TASKS).write_text("".join(f"{name}\n" * each for name in nodes), encoding="utf-8")
    names, total = ",".join(nodes), str(each * len(nodes))
    return out | {
        **dict.fromkeys(("SLURM_NODELIST", "SLURM_JOB_NODELIST"), names),
        **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), str(len(nodes))),
        **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), total),
        "SLURM_TASKS_PER_NODE": f"{each}(x{len(nodes)})",
        "SLURM_HOSTFILE": os.fspath(lists / TASKS),
        "SLURM_DISTRIBUTION": "arbitrary",
    }
