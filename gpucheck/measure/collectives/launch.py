"""Run the ranks of this host to their end or to the deadline, and collect their reports and NCCL's logs."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from gpucheck.measure.collectives.values import RankOptions, RankReport
from gpucheck.processes.environment import nccl_files, rank_environment
from gpucheck.processes.exhausted import limit_in_force
from gpucheck.processes.ranks.nccl_log import Taken
from gpucheck.processes.ranks.nodes import Nodes
from gpucheck.processes.ranks.run_directory import RankError, run_directory
from gpucheck.processes.ranks.supervisor import Reason, rank_specs, supervise

PROGRAM = ("gpucheck.measure.collectives.rank",)
OUTPUT_CHARACTERS = 400
# No rank is found stalled: the options carry no limit for a single collective.
REASONS: dict[Reason, Literal["finished", "failed", "deadline"]] = {
    "finished": "finished",
    "broken": "failed",
    "deadline": "deadline",
}


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended. where: by rank, its last progress. notes: what was changed in the environment of the ranks.

    signals: signal number of each terminated rank. stacks: calls of each rank that hung, innermost first.
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
    output: str = ""


def launch(options: RankOptions, here: int, deadline_s: float, **extra: str) -> Ended:
    """Run the ranks of this host. here: ranks on each host. extra: environment of the ranks.

    No process and no file is left. Raises OSError if no process can be started.
    """
    nodes = options.nodes
    with run_directory("collectives") as directory:
        environment, removed = ranks_environment(os.environ, nodes)
        home = Path(environment.get("HOME", "/"))
        settings = nccl_files(home, several_hosts=_several(nodes)) if options.backend == "nccl" else ()
        processes = here * (nodes.count if nodes else 1)
        specs = tuple(rank_specs(processes, nodes, options))
        ending = supervise(directory, PROGRAM, specs, RankReport, environment | extra, deadline_s)
    ends = ending.ranks
    printed = "\n".join(line for end in ends for line in end.output)[-OUTPUT_CHARACTERS:]
    shortage = None if ending.reason == "finished" else limit_in_force(here)
    return Ended(
        reason=REASONS[ending.reason],
        seconds=ending.seconds,
        ranks=processes,
        reports=tuple(end.report for end in ends if end.report is not None),
        errors={end.rank: end.error for end in ends if end.error is not None},
        where={end.rank: end.progress.decode(errors="replace") or "start" for end in ends},
        signals={end.rank: -end.status for end in ends if end.status is not None and end.status < 0},
        stacks={end.rank: end.stack for end in ends if end.stack} if ending.reason == "deadline" else {},
        taken=ending.taken,
        notes=(
            *(f"environment variable removed for the ranks: {pair}" for pair in removed),
            *(f"NCCL setting that the ranks follow, from {setting}" for setting in settings),
        ),
        output="\n".join(filter(None, (printed, shortage))),
    )


def ranks_environment(caller: Mapping[str, str], nodes: Nodes | None) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the environment of the ranks, and ``NAME=value`` of each variable of the caller that was removed."""
    # On one host loopback always resolves, the host's own name often does not.
    interface = "lo" if nodes is None else nodes.interface
    return rank_environment(caller, interface=interface, several_hosts=_several(nodes))


def _several(nodes: Nodes | None) -> bool:
    """Return whether the network between hosts is used, which users configure."""
    return nodes is not None and nodes.interface != "lo"
