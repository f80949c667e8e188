"""Rounds and tests of a search for bad nodes by fleet size and fault, against bisection and all pairs; time of gate.

The fleets are those of ``gpucheck isolate --simulate-fleet``: 10 to 40 % less bandwidth, 1 % noise, and what a line
states. Nothing is measured on GPUs. Wall time is the number of rounds, as tests of one round run at the same time.
Wanted: 1 round for a healthy fleet, 4 for 2 % of bad nodes, exact in 99.9 % of the seeds, no false accusation.

bisection: all together, groups of about sqrt(N), halves of the slow ones, then each suspect with a good node.
all pairs: N - 1 rounds (round robin); a node that is bad in more than half of its tests is named.
gate: real processes behind a stand-in for ssh, whose quick checks last 2 s and whose tests last 8 s.

usage: python bench/isolate.py [--seeds 1000] >bench/results/isolate-DATE.md
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from gpucheck.isolate.search import Known, Limits, search
from gpucheck.isolate.simulated import GB_S, SimulatedFleet, parse_spec

CASES = [
    ("healthy", "nodes=1024"),
    ("1 slow node", "nodes=16,bad=1"),
    ("2 slow nodes", "nodes=64,bad=2"),
    ("5 slow nodes", "nodes=232,bad=5"),
    ("20 slow nodes", "nodes=1024,bad=20"),
    ("20 slow nodes, loss 10 %", "nodes=1024,bad=20,loss=0.1"),
    ("5 that hang, 5 that die", "nodes=1024,hangs=5,dies=5"),
    ("5 that return wrong data", "nodes=1024,wrong=5"),
    ("4 slow at times", "nodes=1024,sometimes=4"),
    ("1 slow connection", "nodes=128,links=1"),
    ("1 slow switch", "nodes=1024,switches=1"),
    ("1 slow rail", "nodes=1024,nics=1"),
    ("slow only together (>64)", "nodes=1024,together=64"),
]
MOST_PAIRS = 300  # nodes; all pairs of more take minutes a seed
LIMIT = 0.95 * GB_S
SSH = """#!/bin/sh
for word; do script=$word; done
exec setsid -w sh -c "$script"
"""
GPUCHECK = """#!/bin/sh
case $1 in
verify) sleep 2; echo '{"verdict": "pass", "findings": []}' ;;
*) sleep 8
   [ "$GROUP_RANK" != 0 ] || echo '{"schema": "gpucheck.collectives/1", "nodes": 2, "findings": [], "results": [
{"operation": "all_reduce", "size_bytes": 8192, "time_us": 30.0, "busbw_gb_s": 1.0},
{"operation": "all_reduce", "size_bytes": 134217728, "time_us": 9.0, "busbw_gb_s": 390.0}]}' ;;
esac
"""


class Ran(NamedTuple):
    """named: nodes, switches, cards, connections."""

    rounds: int
    tests: int
    named: frozenset[object]


def ours(fleet: SimulatedFleet) -> Ran:
    """The search of gpucheck isolate --expected."""
    steps, rounds, tests = search(Known(fleet.nodes, fleet.switch_of, Limits(GB_S))), 0, 0
    try:
        given = next(steps)
        while True:
            rounds, tests = rounds + 1, tests + len(given)
            given = steps.send(fleet.run(given))
    except StopIteration as ended:
        out = ended.value
    # A group that has a bad node is slow, and the finding names no node of it.
    together = ("together",) if out.together and not set(out.together) & set(fleet.truth.bad) else ()
    return Ran(rounds, tests, frozenset((*out.nodes, *out.links, *out.switches, *out.nics, *together)))


def truth(fleet: SimulatedFleet) -> frozenset[object]:
    """What a search can name."""
    drawn, together = fleet.truth, ("together",) if fleet.spec.together else ()
    return frozenset((*drawn.bad, *drawn.links, *drawn.switches, *drawn.nics, *together))


def is_end(named: object, fleet: SimulatedFleet) -> bool:
    """Whether a named connection ends at a bad node: the finding states that such a node is the other possibility."""
    return isinstance(named, tuple) and bool(set(named) & set(fleet.truth.bad))


def bisection(fleet: SimulatedFleet) -> Ran:
    """Groups are halved as long as they are slow."""
    rounds, tests = 0, 0

    def run(groups: Sequence[tuple[str, ...]]) -> list[bool]:
        nonlocal rounds, tests
        rounds, tests = rounds + 1, tests + len(groups)
        return [one.state == "done" and (one.busbw_gb_s or 0.0) >= LIMIT for one in fleet.run(list(groups))]

    nodes = tuple(fleet.nodes)
    if run([nodes]) == [True]:
        return Ran(rounds, tests, frozenset())
    size = max(2, round(len(nodes) ** 0.5))
    groups = [nodes[at : at + size] for at in range(0, len(nodes), size)]
    good: list[str] = []
    suspects: list[str] = []
    while groups:
        slow = []
        for group, fine in zip(groups, run(groups), strict=True):
            if fine:
                good += group
            else:
                slow.append(group)
        suspects += [name for group in slow if len(group) <= 2 for name in group]
        wide = [group for group in slow if len(group) > 2]
        groups = [half for group in wide for half in (group[: len(group) // 2], group[len(group) // 2 :]) if half]
        suspects += [group[0] for group in groups if len(group) == 1]
        groups = [group for group in groups if len(group) > 1]
    if not suspects or not good:
        return Ran(rounds, tests, frozenset())
    fine = run([(name, good[at % len(good)]) for at, name in enumerate(suspects)])
    return Ran(rounds, tests, frozenset(name for name, is_fine in zip(suspects, fine, strict=True) if not is_fine))


def all_pairs(fleet: SimulatedFleet) -> Ran:
    """Every node with every other one."""
    ring: list[str | None] = [*fleet.nodes, *([None] if len(fleet.nodes) % 2 else [])]
    bad: Counter[str] = Counter()
    tests = 0
    for _ in range(len(ring) - 1):
        pairs = [(a, b) for a, b in zip(ring, reversed(ring), strict=True)][: len(ring) // 2]
        given = [(a, b) for a, b in pairs if a and b]
        tests += len(given)
        for one in fleet.run(list(given)):
            if one.state != "done" or (one.busbw_gb_s or 0.0) < LIMIT:
                bad.update(one.nodes)
        ring = [ring[0], ring[-1], *ring[1:-1]]
    named = frozenset(name for name, count in bad.items() if count > (len(fleet.nodes) - 1) / 2)
    return Ran(len(ring) - 1, tests, named)


def row(what: str, spec: str, how: str, strategy: Callable[[SimulatedFleet], Ran], seeds: int) -> str:
    """One strategy on one kind of fleet."""
    rounds, tests, exact, false, began = [], [], 0, 0, time.process_time()
    for seed in range(seeds):
        fleet = SimulatedFleet(parse_spec(spec)._replace(seed=seed))
        ran = strategy(fleet)
        rounds.append(ran.rounds)
        tests.append(ran.tests)
        exact += ran.named == truth(fleet)
        false += len([one for one in ran.named - truth(fleet) if not is_end(one, fleet)])
    ms = 1000 * (time.process_time() - began) / seeds
    span = f"{statistics.median(rounds):g} (at most {max(rounds)})"
    mean = f"{statistics.mean(tests):,.0f}"
    return f"| {what} | {spec} | {how} | {span} | {mean} | {exact} of {seeds} | {false} | {ms:.0f} |"


def gate_seconds(nodes: int, folder: Path) -> float:
    """How long gpucheck gate takes until the command starts, on so many nodes."""
    for name, text in (("ssh", SSH), ("gpucheck-node", GPUCHECK)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    names = ",".join(f"n{at}" for at in range(nodes))
    command = [sys.executable, "-m", "gpucheck", "gate", "--nodes", names, "--remote", "gpucheck-node"]
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    began = time.monotonic()
    subprocess.run(
        [*command, "--lists", str(folder), "--", "true"], env=environment, check=True, stderr=subprocess.DEVNULL
    )
    return time.monotonic() - began


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    seeds = parser.parse_args().seeds
    print("# Rounds and tests of a search for bad nodes, SIMULATED fleets\n")
    print(f"{time.strftime('%Y-%m-%d')}, `python bench/isolate.py --seeds {seeds}`. Nothing was measured on GPUs.\n")
    print("| fault | fleet | search | rounds | tests | exact | false accusations | ms of planning |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for what, spec in CASES:
        print(row(what, spec, "gpucheck", ours, seeds), flush=True)
        print(row(what, spec, "bisection", bisection, seeds), flush=True)
        if parse_spec(spec).nodes <= MOST_PAIRS:
            print(row(what, spec, "all pairs", all_pairs, max(1, seeds // 50)), flush=True)
    print("\n| nodes | seconds that `gate` adds to a healthy job (quick checks of 2 s, tests of 8 s, simulated) |")
    print("| ---: | ---: |")
    for nodes in (2, 16, 128):
        with tempfile.TemporaryDirectory() as folder:
            print(f"| {nodes} | {gate_seconds(nodes, Path(folder)):.1f} |", flush=True)


if __name__ == "__main__":
    main()
